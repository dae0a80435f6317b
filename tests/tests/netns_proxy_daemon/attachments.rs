//! Pods of the plugin while the daemon's world changes around them. The oracles are packets.

use std::fs;
use std::time::Instant;

use seaway_testbed::fake_api::{NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, bin, require_root};
use serde_json::json;

use crate::node::CONF;
use crate::upkeep::Kept;

/// As when a Node object is deleted and made anew: pods do not move.
#[test]
fn case_54_pods_of_the_former_range_live_on() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let (web, new) = (Netns::new("web"), Netns::new("new"));
    let _server = web.serve(Tcp, "0.0.0.0:80", "web");
    let old = kept.add("web", &web, Some(8080));
    assert!(old.starts_with("10.244.0."), "{old}");
    let anew = crate::node("a", "172.30.0.11", "10.244.7.0/24");
    kept.api.apply(NODES, anew);
    let conf = || fs::read_to_string(kept.node.path(CONF)).unwrap_or_default();
    kept.daemon
        .wait("the new range", || conf().contains("10.244.7.0/24"));
    let address = kept.add("new", &new, None);
    assert!(address.starts_with("10.244.7."), "{address}");
    kept.both_answer(&web, Instant::now());
    let target = format!("{old}:80");
    assert_eq!(new.ask(Tcp, &target).unwrap().name, "web");
    assert!(kept.node.ask(&target).contains("web"));
    let routes = || kept.node.netns.must_run(&["ip", "route"]);
    assert!(routes().contains(&format!("{old} ")), "{}", routes());
    kept.del("web");
    assert!(!routes().contains(&format!("{old} ")), "{}", routes());
    assert!(kept.outside.ask_tcp("192.0.2.1:8080").is_err());
}

/// hostPorts are the plugin's, whoever translates Services.
#[test]
fn host_ports_work_beside_either_service_proxy() {
    if !require_root() {
        return;
    }
    for service_proxy in ["iptables", "ebpf"] {
        let kept = Kept::with_plugin(service_proxy, &bin("seaway-cni"), &[]);
        let (web, other) = (Netns::new("web"), Netns::new("other"));
        let _servers = [
            web.serve(Tcp, "0.0.0.0:80", "web"),
            other.serve(Tcp, "0.0.0.0:8080", "other"),
        ];
        kept.add("web", &web, Some(8080));
        let behind = kept.add("other", &other, None);
        // The Service's port is the number of the hostPort.
        let mut service = crate::service("other", "10.96.0.7");
        service["spec"]["ports"][0]["port"] = json!(8080);
        kept.api.apply(SERVICES, service);
        kept.api.apply(SLICES, crate::slice("other", &behind));
        let served = || kept.node.ask("10.96.0.7:8080").contains("other");
        kept.daemon.wait("the Service", served);
        kept.both_answer(&web, Instant::now());
        for address in ["127.0.0.1:8080", "192.0.2.1:8080"] {
            assert!(kept.node.ask(address).contains("web"), "{address}");
        }
        assert_eq!(other.ask(Tcp, "192.0.2.1:8080").unwrap().name, "web");
        kept.del("web");
        assert!(kept.outside.ask_tcp("192.0.2.1:8080").is_err());
        assert!(kept.node.ask("10.96.0.7:8080").contains("other"));
    }
}
