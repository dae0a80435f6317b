//! A pod network that cannot be written, in a part or as a whole: kubelet's probe stays content, so
//! that Services are followed, and only the latter keeps load balancers away.

use std::time::{Duration, Instant};

use seaway_testbed::fake_api::{FakeApi, SLICES};
use seaway_testbed::require_root;
use serde_json::Value;

use crate::node::{API, Daemon, Node};
use crate::{fill, slice};

/// What waits to be written for twice the period is ill.
const FLAGS: [&str; 6] = [
    "--cluster-cidr",
    "10.244.0.0/16",
    "--pod-routes",
    "direct",
    "--iptables-sync-period",
    "2s",
];
/// Past that.
const LATE: Duration = Duration::from_secs(6);
const TO_B: &str = "10.244.1.0/24";

/// A daemon that serves.
fn start(node: &Node, flags: &[&str]) -> (FakeApi, Daemon) {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start_with("iptables", &[&FLAGS[..], flags].concat());
    daemon.wait_said(&["Programmed all Services"]);
    (api, daemon)
}

/// Code and body of what kubelet asks for, and of what load balancers do.
fn health(node: &Node) -> [(u16, Value); 2] {
    ["/livez", "/healthz"].map(|path| {
        let (code, body) = node.get(path).unwrap();
        (code, serde_json::from_str(&body).unwrap())
    })
}

/// A change of a Service reaches the kernel.
#[track_caller]
fn assert_follows(node: &Node, api: &FakeApi, daemon: &Daemon) {
    api.apply(SLICES, slice("web", "10.244.0.9"));
    daemon.wait("the change of a Service", || {
        node.has_rule("10.244.0.9:8080")
    });
}

#[test]
fn a_peers_route_that_cannot_be_written_is_told_and_makes_nobody_ill() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    // As another plugin leaves it.
    let foreign = format!("{TO_B} via 172.30.0.99 proto static");
    node.netns.ip(&format!("route add {foreign}"));
    let (api, daemon) = start(&node, &[]);
    let told = ["WARN", "somebody else has a route", TO_B];
    daemon.wait_said(&told);
    let since = Instant::now();
    assert_follows(&node, &api, &daemon);
    daemon.wait("more than twice the period", || {
        let [(live, of_live), (ready, of_ready)] = health(&node);
        assert_eq!(live, 200, "{of_live}\n{}", daemon.log());
        assert_eq!(ready, 200, "{of_ready}\n{}", daemon.log());
        since.elapsed() > LATE
    });
    assert_eq!(daemon.said(&told), 1, "{}", daemon.log());
    let (_, metrics) = node.get_from("127.0.0.1:10249", "/metrics").unwrap();
    let line = "seaway_pod_network_sync_failures_total ";
    let count = metrics.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    assert!(count.parse::<u32>().unwrap() > 0, "{metrics}");
    let route = node.netns.ip(&format!("route show {TO_B}"));
    assert!(route.contains("via 172.30.0.99"), "{route}");
}

#[test]
fn an_uplink_that_is_late_keeps_load_balancers_away_and_is_no_reason_for_a_restart() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (api, daemon) = start(&node, &["--uplink", "late0"]);
    daemon.wait_said(&["WARN", "Cannot program the pod network", "--uplink late0"]);
    assert_follows(&node, &api, &daemon);
    daemon.wait("an ill pod network", || {
        let [(live, of_live), (ready, of_ready)] = health(&node);
        assert_eq!(live, 200, "{of_live}\n{}", daemon.log());
        ready == 503 && of_ready["status"]["PodNetwork"]["healthy"] == false
    });
    node.netns.ip("link add late0 type veth peer name late1");
    daemon.wait("a node that is well", || {
        let [(live, of_live), (ready, _)] = health(&node);
        assert_eq!(live, 200, "{of_live}\n{}", daemon.log());
        ready == 200
    });
}
