//! Another backend, or another flavour of iptables, takes over: nobody is refused, and no
//! connection is dropped, of the node itself or of a pod. The oracles are connections and
//! `iptables-save`.

use std::fs;

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, XTABLES_WAIT, require_root};
use serde_json::json;

use crate::dual;
use crate::load::Load;
use crate::node::{API, Daemon, Node};
use crate::pod::pod;
use crate::takeover::go_on;

#[path = "switches/programs.rs"]
mod programs;

use programs::{Asker, Holder, stop};

const FLAGS: [&str; 4] = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];
/// The Service's addresses that both backends serve: eBPF serves IPv4 alone.
const VIPS: [&str; 1] = ["10.96.0.1:80"];
/// More than those that had been asked for already.
const SOME: usize = 20;

fn filled(node: &Node) -> FakeApi {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    crate::fill(&api);
    api.apply(NODES, crate::node("a", "172.30.0.11", "10.244.0.0/24"));
    api
}

/// Somebody else's CNI does this on every node. Without a rule that wants it the kernel tracks no
/// connection in a namespace, and translates none that it knows.
fn masquerade(node: &Node) {
    for (program, pods) in [
        ("iptables-nft", "10.244.0.0/16"),
        ("ip6tables-nft", "fd00:244::/48"),
    ] {
        let rule = format!("-A POSTROUTING -s {pods} -o eth0 -j MASQUERADE");
        let words = format!("{program} {XTABLES_WAIT} -t nat {rule}");
        node.netns.must_run(&words.split(' ').collect::<Vec<_>>());
    }
}

/// A node of both families, whose Service `web` has a pod on the node itself.
fn dual_node() -> (Node, FakeApi, [Server; 2]) {
    let node = dual::node("nft");
    masquerade(&node);
    let at = ["10.244.0.5:8080", "[fd00:244::5]:8080"];
    let servers = at.map(|at| node.netns.serve(Protocol::Tcp, at, "web"));
    let api = dual::api(&node);
    api.apply(SERVICES, dual::service("web", ["10.96.0.1", "fd00:96::1"]));
    let ready = |pods: &str| json!([{ "addresses": [format!("{pods}5")], "nodeName": "a" }]);
    for slice in dual::slices("web", ready) {
        api.apply(SLICES, slice);
    }
    (node, api, servers)
}

/// The daemon once it has programmed everything by this backend.
fn start(node: &Node, mode: &str) -> Daemon {
    // What an earlier one has said is not its word.
    fs::remove_file(node.path("log")).ok();
    let daemon = node.start_with(mode, &dual::FLAGS);
    daemon.wait_said(&["Programmed all Services", &format!("backend=\"{mode}\"")]);
    daemon
}

/// One connection to each address from each place, made by the backend that serves now.
fn hold(node: &Node, places: [&Netns; 2]) -> Vec<Holder> {
    let from = |place| VIPS.map(|vip| Holder::open(node, place, vip));
    places.map(from).into_iter().flatten().collect()
}

#[test]
fn a_switch_of_backends_refuses_nobody_and_drops_no_connection() {
    if !require_root() {
        return;
    }
    let (node, _api, _servers) = dual_node();
    let pod = pod(&node);
    let places = [&node.netns, &pod];
    let none = node.pins();
    let mut daemon = start(&node, "iptables");
    let askers = [("node", places[0]), ("pod", places[1])]
        .map(|(name, place)| Asker::start(&node, place, name, &VIPS));
    let mut held = Vec::new();
    for mode in ["ebpf", "iptables", "ebpf", "iptables"] {
        held.extend(hold(&node, places));
        assert_eq!(daemon.end(Signal::SIGTERM).code(), Some(0));
        daemon = start(&node, mode);
        let before = askers.each_ref().map(Asker::answered);
        daemon.wait("more answers, and the other's removal", || {
            let more = askers
                .iter()
                .zip(before)
                .all(|(a, n)| a.answered() > n + SOME);
            let (rules, pins) = (node.has_rule("SEAWAY-SERVICES"), node.pins() != none);
            more && rules == (mode == "iptables") && pins == (mode == "ebpf")
        });
        for holder in &mut held {
            holder.check(mode);
        }
    }
    stop(&node);
    for asker in askers {
        asker.end();
    }
}

#[test]
fn a_switch_of_flavours_refuses_nobody_and_leaves_nothing() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _web = node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let pod = pod(&node);
    let _api = filled(&node);
    // By this chain a kubelet tells which flavour it uses.
    let hint = |flavour: &str, what: &str| {
        let program = format!("iptables-{flavour} {XTABLES_WAIT}");
        let words = format!("{program} -t mangle {what} KUBE-IPTABLES-HINT");
        node.netns.must_run(&words.split(' ').collect::<Vec<_>>());
    };
    hint("nft", "-N");
    let mut daemon = node.start_with("iptables", &FLAGS);
    daemon.wait_said(&["Using iptables", "nft"]);
    daemon.wait_said(&["Programmed all Services"]);
    let loads = [&node.netns, &pod].map(|from| Load::start(from, &["10.96.0.1:80"]));
    for (from, to) in [("nft", "legacy"), ("legacy", "nft")] {
        hint(from, "-X");
        hint(to, "-N");
        assert_eq!(daemon.end(Signal::SIGTERM).code(), Some(0));
        fs::remove_file(node.path("log")).unwrap();
        daemon = node.start_with("iptables", &FLAGS);
        daemon.wait_said(&["Using iptables", to]);
        daemon.wait_said(&["Programmed all Services"]);
        let rules = |flavour: &str| {
            let dump = node.netns.must_run(&[format!("iptables-{flavour}-save")]);
            dump.contains("SEAWAY-SERVICES")
        };
        assert!(rules(to));
        daemon.wait("the other flavour's removal", || !rules(from));
        go_on(&daemon, &loads);
    }
    drop(daemon);
    for load in loads {
        assert!(load.end() > 100);
    }
}
