//! The MTU that a pod gets, from the uplink to the pod's interface.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::node::{API, CONF, Node};
use crate::pair::api_node;
use seaway_testbed::fake_api::{FakeApi, NODES};
use seaway_testbed::{Netns, bin, require_root};

/// A node whose uplink takes jumbo frames.
fn jumbo() -> Node {
    let netns = Netns::new("node");
    netns.ip("link add eth0 mtu 9000 type veth peer name far mtu 9000");
    netns.ip("addr add 172.30.0.11/24 dev eth0");
    netns.ip("addr add fd00:30::11/64 dev eth0 nodad");
    netns.ip("link set eth0 up");
    netns.ip("link set far up");
    Node::of(netns)
}

/// ADD with the conf that the daemon has written, as a runtime does it for CNI 1.1.0.
pub(crate) fn add(node: &Node, pod: &Netns) -> Value {
    let list: Value = serde_json::from_slice(&fs::read(node.path(CONF)).unwrap()).unwrap();
    let mut conf = list["plugins"][0].clone();
    conf["name"] = list["name"].clone();
    conf["cniVersion"] = json!("1.1.0");
    let mut command = node.netns.command(bin("seaway-cni"));
    command.env_clear().envs([
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", pod.name()),
        ("CNI_NETNS", pod.path().to_str().unwrap()),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(conf.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn case_23_pods_get_what_fits_through_the_uplink_and_both_ends_agree() {
    if !require_root() {
        return;
    }
    for (flags, expect) in [
        ("--pod-routes direct", 9000),
        ("--pod-routes vxlan", 8950),
        ("--pod-routes auto", 8950),
        ("--pod-routes vxlan --node-ip fd00:30::11", 8930),
        ("--pod-routes vxlan --mtu 1400", 1400),
    ] {
        let node = jumbo();
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        api.apply(NODES, api_node("a", &["172.30.0.11"], &["10.244.0.0/24"]));
        let mut words = vec!["--cluster-cidr", "10.244.0.0/16"];
        words.extend(flags.split(' '));
        let daemon = node.start_as("a", "off", &words);
        daemon.wait("the CNI conf", || node.path(CONF).exists());
        let pod = Netns::new("pod");
        let result = add(&node, &pod);
        let interfaces = result["interfaces"].as_array().unwrap();
        assert_eq!(interfaces.len(), 2, "{result}");
        for interface in interfaces {
            assert_eq!(interface["mtu"], expect, "{flags}: {result}");
            let inside = interface["sandbox"].is_string();
            let netns = if inside { &pod } else { &node.netns };
            let ifname = interface["name"].as_str().unwrap();
            let links = netns.ip_json(&format!("link show dev {ifname}"));
            assert_eq!(links[0]["mtu"], expect, "{flags}: {ifname}");
        }
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}
