//! The CNI conf: an old one is withdrawn, and one that cannot be written is told of.

use std::fs;

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::require_root;

use crate::fill;
use crate::node::{API, CONF, Node};

#[test]
fn a_conf_of_an_earlier_boot_is_withdrawn_at_the_start() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    fs::create_dir_all(node.path("net.d")).unwrap();
    fs::write(node.path(CONF), "{}").unwrap();
    fs::write(node.path("net.d/10-other.conf"), "{}").unwrap();
    let daemon = node.start("iptables");
    daemon.wait("no conf", || !node.path(CONF).exists());
    assert!(node.path("net.d/10-other.conf").exists());
}

#[test]
fn a_conf_that_cannot_be_written_is_told_once_with_its_path() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    // Files can be made there by nobody.
    std::os::unix::fs::symlink("/proc/self", node.path("net.d")).unwrap();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("off");
    let told = ["WARN", "Cannot write the CNI conf", CONF];
    daemon.wait_said(&told);
    let attempts = || {
        let (_, text) = node.get_from("127.0.0.1:10249", "/metrics").unwrap();
        let line = "seaway_pod_network_sync_failures_total ";
        let count = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        count.parse::<u32>().unwrap()
    };
    daemon.wait("three attempts", || attempts() >= 3);
    assert_eq!(daemon.said(&told), 1, "{}", daemon.log());
    let (_, body) = node.get("/healthz").unwrap();
    assert!(body.contains("CNIConf"), "{body}");
    fs::remove_file(node.path("net.d")).unwrap();
    daemon.wait("the CNI conf", || node.path(CONF).exists());
}
