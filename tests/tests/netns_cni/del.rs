//! DEL takes away what ADD made, whatever state it finds.

use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, address, assert_reaches, pod_path};

#[test]
fn case_35_36_37_40_41_del_leaves_nothing_and_can_be_repeated() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.add("c1", &pod);
    node.del("c1", pod_path(&pod));
    node.assert_empty();
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    for path in [pod_path(&pod), "", "/run/netns/absent", "/etc/passwd"] {
        node.del("c1", path);
    }
    node.assert_empty();
    node.del("never-seen", "");
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
