//! A connection to the API server that is dead without a word, as when a router forgets it.

use std::time::{Duration, Instant};

use seaway_testbed::require_root;

use crate::fill;
use crate::node::{API, Node};
use seaway_testbed::fake_api::{FakeApi, SLICES};

/// From now on nothing passes on the daemon's connections; new ones are not concerned.
fn kill_connections(node: &Node) {
    let (_, port) = API.rsplit_once(':').unwrap();
    let filter = format!("dport = :{port}");
    let listed = node
        .netns
        .must_run(&["ss", "-Htn", "state", "established", &filter]);
    let ports: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.rsplit(':').next())
        .collect();
    assert!(!ports.is_empty(), "no connection in {listed:?}");
    let ports = ports.join(", ");
    let table = format!(
        "table inet dead {{ chain drops {{ type filter hook input priority raw; \
         tcp sport {{ {ports} }} tcp dport {port} drop; \
         tcp sport {port} tcp dport {{ {ports} }} drop; }}; }}"
    );
    node.netns.must_run(&["nft", &table]);
}

#[test]
fn a_watch_that_is_silently_dead_is_taken_up_again_within_seconds() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start_with("iptables", &["--pod-network", "off"]);
    daemon.wait_said(&["Programmed all Services"]);
    kill_connections(&node);
    let dead = Instant::now();
    api.apply(SLICES, crate::slice("web", "10.244.0.9"));
    // In the kernel's 14 s of asking, and the time for a new connection and its list.
    daemon.wait("the change", || {
        let rules = node.rules().concat();
        let changed = rules.contains("10.244.0.9:8080");
        // Meanwhile the node serves what it knows, and is well.
        assert!(changed || rules.contains("10.244.0.5:8080"), "{rules}");
        assert_eq!(node.get("/livez").unwrap().0, 200);
        changed
    });
    // It was dead indeed.
    assert!(dead.elapsed() > Duration::from_secs(5), "{}", daemon.log());
    assert_eq!(daemon.terminate().code(), Some(0));
}
