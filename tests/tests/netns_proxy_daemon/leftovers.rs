//! What a former daemon has left: the next one takes it up, or takes it away if it was another
//! backend's.

use std::fs;

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::node::{API, CONF, Node};
use crate::{fill, node, service, slice};

#[test]
fn killed_and_started_again_it_takes_up_what_it_left() {
    if !require_root() {
        return;
    }
    for mode in ["iptables", "ebpf"] {
        let node_a = Node::new();
        let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
        let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
        fill(&api);
        let daemon = node_a.start(mode);
        daemon.wait("the CNI conf", || node_a.path(CONF).exists());
        let written = fs::metadata(node_a.path(CONF)).unwrap().modified().unwrap();
        assert_eq!(daemon.end(Signal::SIGKILL).code(), None);
        assert!(node_a.ask("10.96.0.1:80").contains("web"), "{mode}");
        // What happens meanwhile is found out at the start.
        api.apply(SERVICES, service("new", "10.96.0.2"));
        api.apply(SLICES, slice("new", "10.244.0.5"));
        api.delete(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
        fs::remove_file(node_a.path("log")).unwrap();
        let daemon = node_a.start(mode);
        daemon.wait_said(&["Programmed all Services"]);
        assert!(
            node_a.ask("10.96.0.2:80").contains("web"),
            "{mode}: {}",
            daemon.log()
        );
        daemon.wait("no route to b", || {
            !node_a.routes().contains("10.244.1.0/24")
        });
        // The same conf, so the runtime has seen no change.
        assert_eq!(
            fs::metadata(node_a.path(CONF)).unwrap().modified().unwrap(),
            written
        );
        assert_eq!(daemon.terminate().code(), Some(0));
        node_a.cleanup();
    }
}

#[test]
fn another_backend_takes_over_and_leaves_nothing_of_the_former() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    let (rules, pins) = (node_a.rules(), node_a.pins());
    for (mode, other_is_gone) in [
        (
            "iptables",
            Box::new(|| node_a.pins() == pins) as Box<dyn Fn() -> bool>,
        ),
        ("ebpf", Box::new(|| node_a.rules() == rules)),
        ("iptables", Box::new(|| node_a.pins() == pins)),
    ] {
        let daemon = node_a.start(mode);
        daemon.wait_said(&["Programmed all Services", &format!("backend=\"{mode}\"")]);
        daemon.wait("the other backend's removal", &other_is_gone);
        assert!(
            node_a.ask("10.96.0.1:80").contains("web"),
            "{mode}: {}",
            daemon.log()
        );
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}
