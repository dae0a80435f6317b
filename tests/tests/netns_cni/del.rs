//! DEL takes away what ADD made, whatever state it finds.

use seaway_testbed::{Netns, require_root, strace_is_missing};
use serde_json::json;

use crate::node::{Node, address, assert_reaches, failure, feed, pod_path, text};
use crate::trace::traced;

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

fn links(pod: &Netns) -> usize {
    pod.ip_json("link").as_array().unwrap().len()
}

#[test]
fn case_35_36_del_leaves_nothing_and_can_be_repeated() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    node.add("c1", &pod);
    for _ in 0..3 {
        node.del("c1", pod_path(&pod));
        node.assert_empty();
        assert_eq!(links(&pod), 1);
    }
    node.del("never-seen", "");
    node.assert_empty();
}

#[test]
fn case_37_del_releases_the_address_whatever_the_namespace_is_said_to_be() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let (pod, other) = (Netns::new("pod"), Netns::new("other"));
    // Two addresses, of which one is the other pod's: each ADD needs what the DEL before it
    // has released.
    node.conf["ipam"]["ranges"][0]["rangeEnd"] = json!("10.244.1.3");
    node.add("other", &other);
    // What is left of a namespace's file when it is not mounted any more.
    let plain = node.dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    for path in [
        Some(pod_path(&pod)),
        None,
        Some(""),
        Some("/run/netns/absent"),
        plain.to_str(),
        Some(pod_path(&other)),
    ] {
        assert_eq!(address(&node.add("c1", &pod)), "10.244.1.3", "{path:?}");
        let mut command = node.command("DEL", "c1", path.unwrap_or_default());
        if path.is_none() {
            command.env_remove("CNI_NETNS");
        }
        let output = feed(command, &node.conf);
        let silent = output.status.success() && output.stdout.is_empty();
        assert!(silent, "{path:?}: {}", text(&output));
        assert_eq!(node.records(), ["10.244.1.2=other:eth0"], "{path:?}");
        assert_eq!((links(&pod), links(&other)), (1, 2), "{path:?}");
        assert_reaches(&node.netns, "10.244.1.2");
    }
    node.del("other", "");
    node.assert_empty();
}

/// The host has a route to what will be the pod's address, so that the last step of ADD fails.
fn occupy_the_first_address(node: &Node) {
    node.netns.ip("link add x0 type veth peer name x1");
    node.netns.ip("link set x0 up");
    node.netns.ip("route add 10.244.1.2/32 dev x0");
}

#[test]
fn case_40_del_after_an_add_that_failed() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    occupy_the_first_address(&node);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    let details = error["details"].as_str().unwrap();
    assert!(details.contains("route add 10.244.1.2/32"), "{error}");
    for path in [pod_path(&pod), ""] {
        node.del("c1", path);
        assert_eq!(node.records(), [""; 0]);
        assert_eq!(links(&pod), 1);
    }
    let route = node.netns.ip_json("route show 10.244.1.2");
    assert_eq!(route[0]["dev"], "x0", "it is not the pod's: {route}");
    // That one had been reserved: it is not the next any more.
    assert_eq!(address(&node.add("c1", &pod)), "10.244.1.3");
    node.del("c1", pod_path(&pod));
    node.netns.ip("link del x0");
    node.assert_empty();
}

#[test]
fn case_40_del_releases_what_a_failed_add_could_not() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    occupy_the_first_address(&node);
    let inject = "inject=unlink,unlinkat:error=EIO";
    let options = ["-f", "-o", "/dev/null", "-e", inject];
    let error = failure(&traced(&node, "ADD", "c1", pod_path(&pod), &options));
    let details = error["details"].as_str().unwrap();
    assert!(details.contains("not undone: release"), "{error}");
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
    node.del("c1", pod_path(&pod));
    node.netns.ip("link del x0");
    assert_eq!(links(&pod), 1);
    node.assert_empty();
}

/// The conf is the daemon's, which does not run; and what was in /run may be gone.
#[test]
fn case_41_del_needs_neither_the_daemon_nor_what_it_has_written() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let state = node.dir.path().join("pod-network.json");
    node.conf["cniVersion"] = json!("1.1.0");
    node.conf["podNetworkState"] = json!(state);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let serving = json!({"bootId": boot.trim(), "mode": "direct", "mtu": 1450}).to_string();
    for (state_is_lost, records_are_lost) in [(true, false), (false, true), (true, true)] {
        std::fs::write(&state, &serving).unwrap();
        let status = node.call("STATUS", "", "");
        assert!(status.status.success(), "{}", text(&status));
        node.add("c1", &pod);
        if state_is_lost {
            std::fs::remove_file(&state).unwrap();
            assert_eq!(node.fails("STATUS", "", "")["code"], 51);
        }
        if records_are_lost {
            std::fs::remove_dir_all(node.record_dir()).unwrap();
        }
        node.del("c1", pod_path(&pod));
        assert_eq!(links(&pod), 1);
        node.assert_empty();
    }
}

#[test]
fn case_38_del_after_the_namespace_is_gone_and_with_a_strange_conf() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.add("c1", &pod);
    let path = pod_path(&pod).to_owned();
    drop(pod);
    assert_eq!(node.records().len(), 1);
    node.conf["strange"] = json!(1);
    node.conf["ipam"]["ranges"] = json!([{"subnet": "10.9.0.0/24"}]);
    node.del("c1", &path);
    assert_eq!(node.records(), [""; 0]);
}

#[test]
fn case_39_del_never_touches_another_pod() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.add("a", &a);
    let result = node.add("b", &b);
    // The runtime's path may by now belong to somebody else.
    node.del("a", pod_path(&b));
    assert_reaches(&node.netns, &address(&result));
    assert_eq!(node.records(), [format!("{}=b:eth0", address(&result))]);
}
