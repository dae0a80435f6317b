//! The same binary under the name `loopback`.

use std::os::unix::process::CommandExt as _;

use seaway_testbed::{Netns, bin, require_root};
use serde_json::json;

use crate::node::{Node, assert_reaches, feed, pod_path, success};

#[test]
fn called_as_loopback_it_brings_lo_up() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    pod.ip("link set lo down");
    let loopback = node.dir.path().join("loopback");
    std::os::unix::fs::symlink(bin("seaway-cni"), &loopback).unwrap();
    node.program = loopback;
    // What containerd sends.
    node.conf = json!({"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"});
    let result = node.add("c1", &pod);
    assert_eq!(result["interfaces"][0]["name"], "lo");
    assert_eq!(result["interfaces"][0]["sandbox"], pod_path(&pod));
    assert_eq!(
        result["ips"][0],
        json!({"version": "4", "interface": 0, "address": "127.0.0.1/8"})
    );
    assert_eq!(result["ips"][1]["address"], "::1/128");
    assert_reaches(&pod, "127.0.0.1");
    assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
    node.conf["prevResult"] = json!({"cniVersion": "0.3.1", "dns": {"domain": "x"}});
    assert_eq!(
        node.add("c1", &pod),
        json!({"cniVersion": "0.3.1", "dns": {"domain": "x"}})
    );
    node.del("c1", pod_path(&pod));
    assert_eq!(node.fails("CHECK", "c1", pod_path(&pod))["code"], 102);
    node.del("c1", "");
    node.del("c1", "/run/netns/absent");
    success(&node.call("VERSION", "", ""));
    node.assert_empty();
}

#[test]
fn the_program_name_decides_not_the_file() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let mut command = node.command("ADD", "c1", pod_path(&pod));
    command.arg0("/opt/cni/bin/loopback");
    let result = success(&feed(command, &node.conf));
    assert_eq!(result["interfaces"][0]["name"], "lo");
}
