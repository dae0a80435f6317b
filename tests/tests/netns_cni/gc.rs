//! GC, and STATUS beyond the pool.

mod delegated;

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::hostports::{self, elements, mapping, serve};
use crate::node::{Node, address, assert_reaches, pod_path, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

fn gc(node: &mut Node, key: &str, valid: &[&str]) -> std::process::Output {
    let valid: Vec<Value> = valid
        .iter()
        .map(|id| json!({"containerID": id, "ifname": "eth0"}))
        .collect();
    let before = node.conf.clone();
    node.conf["cniVersion"] = json!("1.1.0");
    node.conf[key] = json!(valid);
    let output = node.call("GC", "", "");
    node.conf = before;
    output
}

fn lose_records(node: &Node, id: &str) {
    let mut records = node.records();
    records.retain(|record| record.contains(&format!("={id}:")));
    assert!(!records.is_empty());
    for record in records {
        std::fs::remove_file(node.record_dir().join(record)).unwrap();
    }
}

/// What GC may not do is worse than what it must: the valid one lives on.
#[test]
fn case_47_gc_removes_what_no_valid_attachment_owns() {
    if !require_root() {
        return;
    }
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        let mut node = Node::with_ranges(&BOTH);
        let pods: Vec<Netns> = (0..4).map(|_| Netns::new("pod")).collect();
        let live = address(&node.add("c1", &pods[0]));
        for (id, pod) in ["c2", "c3", "c4"].iter().zip(&pods[1..]) {
            node.add(id, pod);
        }
        // One has lost its interface, another its records.
        pods[1].ip("link del eth0");
        lose_records(&node, "c3");
        let before = node.records();
        node.netns
            .ip("link add sw0123456789ab type veth peer name foreign");
        node.conf["cniVersion"] = json!("1.1.0");
        assert_eq!(
            node.fails("GC", "", "")["code"],
            7,
            "no list is not an empty list"
        );
        node.conf["cniVersion"] = json!("1.0.0");
        assert_eq!(node.records(), before);

        let done = gc(&mut node, key, &["c1"]);
        assert!(
            done.status.success() && done.stdout.is_empty(),
            "{}",
            text(&done)
        );
        assert_eq!(
            node.records(),
            ["10.244.1.2=c1:eth0", "fd00:1:2::2=c1:eth0"]
        );
        assert_reaches(&node.netns, &live);
        for pod in &pods[1..] {
            assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
        }
        node.netns.ip("link del sw0123456789ab");
        assert!(gc(&mut node, key, &[]).status.success());
        node.assert_empty();
    }
}

/// A port that is left would lead to whoever gets the address next.
#[test]
fn case_47_ports_of_the_dead_are_closed_and_those_of_the_living_answer() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = hostports::node();
    let pods: Vec<Netns> = (0..3).map(|_| Netns::new("pod")).collect();
    let (ids, key) = (["c1", "c2", "c3"], "cni.dev/valid-attachments");
    let sorted = |node: &Node| {
        let mut all = elements(node);
        all.sort();
        all
    };
    let mut living = Vec::new();
    for ((id, pod), port) in ids.iter().zip(&pods).zip(8081..) {
        let ports = [mapping("", port, "tcp"), mapping("192.0.2.1", port, "udp")];
        hostports::add(&mut node, id, pod, &ports);
        if living.is_empty() {
            living = sorted(&node);
        }
    }
    assert_eq!(elements(&node).len(), 3 * living.len());
    // One has lost its interface, another its records.
    pods[1].ip("link del eth0");
    lose_records(&node, "c3");
    let done = gc(&mut node, key, &["c1"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(sorted(&node), living);
    let _servers = serve(&pods[0], "c1");
    for target in ["192.0.2.1:8081", "[fd00:192::1]:8081"] {
        assert_eq!(outside.ask_tcp(target).unwrap(), "c1", "{target}");
    }
    assert_eq!(outside.ask_udp("192.0.2.1:8081").unwrap(), "c1");
    assert!(gc(&mut node, key, &[]).status.success());
    assert_eq!(elements(&node), [""; 0]);
}

#[test]
fn case_47_one_record_that_cannot_be_removed_does_not_keep_the_others() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let pods: Vec<Netns> = (0..3).map(|_| Netns::new("pod")).collect();
    for (n, pod) in pods.iter().enumerate() {
        node.add(&format!("c{n}"), pod);
    }
    // A folder cannot be unlinked, not even by root.
    let stuck = node.record_dir().join("10.244.1.3=c1:eth0");
    std::fs::remove_file(&stuck).unwrap();
    std::fs::create_dir(&stuck).unwrap();
    std::fs::write(stuck.join("x"), "").unwrap();
    let done = gc(&mut node, "cni.dev/valid-attachments", &[]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done));
    assert!(
        text(&done).contains("10.244.1.3=c1:eth0"),
        "{}",
        text(&done)
    );
    std::fs::remove_dir_all(&stuck).unwrap();
    node.assert_empty();
}

#[test]
fn case_48_gc_of_one_network_leaves_another_alone() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.add("a", &a);
    node.conf["name"] = json!("other");
    node.conf["ipam"]["ranges"] = json!([{"subnet": "10.9.0.0/24"}]);
    let other = address(&node.add("b", &b));
    // Even when the record is gone, the interface is known to be another's.
    node.conf["name"] = json!("seaway");
    assert!(
        gc(&mut node, "cni.dev/valid-attachments", &[])
            .status
            .success()
    );
    assert_reaches(&node.netns, &other);
    assert_eq!(node.records(), [""; 0]);
    assert_eq!(a.ip_json("link").as_array().unwrap().len(), 1);
    node.conf["name"] = json!("other");
    node.del("b", "");
    node.assert_empty();
}

#[test]
fn case_8_gc_needs_version_1_1_0() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    node.conf["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(node.fails("GC", "", "")["code"], 1);
    assert_eq!(node.fails("STATUS", "", "")["code"], 1);
    node.conf["cniVersion"] = json!("0.3.1");
    assert_eq!(
        node.fails("CHECK", "c1", pod_path(&Netns::new("pod")))["code"],
        1
    );
}

#[test]
fn case_46_status_tells_a_full_pool_from_pods_that_suffer() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (
        Node::with_ranges(&["10.244.1.0/30", BOTH[1]]),
        Netns::new("pod"),
    );
    node.conf["cniVersion"] = json!("1.1.0");
    let status = |node: &Node| node.call("STATUS", "", "");
    assert!(status(&node).status.success());
    node.add("c1", &pod);
    let full = node.fails("STATUS", "", "");
    assert_eq!(full["code"], 50);
    assert!(full["details"].as_str().unwrap().contains("10.244.1.0/30"));
    for (key, code) in [("ipv4/ip_forward", 51), ("ipv6/conf/all/forwarding", 51)] {
        node.netns.sysctl(key, "0");
        let cut_off = node.fails("STATUS", "", "");
        assert_eq!(cut_off["code"], code);
        let why = cut_off["details"].as_str().unwrap();
        assert!(why.contains(key), "{cut_off}");
        node.netns.sysctl(key, "1");
    }
    node.del("c1", "");
    assert!(status(&node).status.success());
}

#[test]
fn case_21_a_stale_interface_of_ours_is_replaced() {
    if !require_root() {
        return;
    }
    let (node, old, new) = (
        Node::new("10.244.1.0/24"),
        Netns::new("old"),
        Netns::new("new"),
    );
    node.add("c1", &old);
    // The runtime made a new sandbox under the same id; the old one has lost its interface.
    old.ip("link del eth0");
    assert_reaches(&node.netns, &address(&node.add("c1", &new)));
    assert_eq!(old.ip_json("link").as_array().unwrap().len(), 1);
    // The record is lost, too.
    std::fs::remove_dir_all(node.record_dir()).unwrap();
    assert_reaches(&node.netns, &address(&node.add("c1", &old)));
    assert_eq!(new.ip_json("link").as_array().unwrap().len(), 1);
    node.del("c1", "");
    node.assert_empty();
}
