//! Nodes with two links: which one the packets of pods take.
//!
//! ```text
//!  pod ─ a ─┬─ eth0 172.30.0.11 ─ br0 ─ 172.30.0.12 eth0 ─┬─ b ─ pod
//!           └─ eth1 172.31.0.11 ─ br1 ─ 172.31.0.12 eth1 ─┘
//! ```
//! The same in IPv6: fd00:30::1N and fd00:31::1N. The default route leads by eth0.

use serde_json::Value;

use crate::pair::{Pair, api_node};
use seaway_testbed::{Netns, require_root};

pub(crate) const PODS_B: [&str; 2] = ["10.244.1.5:80", "[fd00:244:0:1::5]:80"];
/// Questions of one measurement. Each takes five packets or more of whoever asks.
const QUESTIONS: u64 = 20;
/// What neighbours ask each other meanwhile, at most.
const NOISE: u64 = QUESTIONS;

/// The second link, and the default route by the first one.
pub(crate) fn second_link(fabric: &Netns, node: &Netns, place: usize) {
    if place == 0 {
        fabric.ip("link add br1 type bridge");
        fabric.ip("link set br1 up");
    }
    let (port, peer) = (format!("second{place}"), node.name());
    fabric.ip(&format!(
        "link add {port} type veth peer name eth1 netns {peer}"
    ));
    fabric.ip(&format!("link set {port} master br1 up"));
    node.ip(&format!("addr add 172.31.0.{}/24 dev eth1", 11 + place));
    node.ip(&format!(
        "addr add fd00:31::{}/64 dev eth1 nodad",
        11 + place
    ));
    node.ip("link set eth1 up");
    node.ip("route add default via 172.30.0.99 dev eth0");
    node.ip("-6 route add default via fd00:30::99 dev eth0");
}

/// Both links' addresses are InternalIPs, as of a virtual machine with two cards.
pub(crate) fn api(place: usize) -> Value {
    let last = 11 + place;
    let ips = [
        format!("172.30.0.{last}"),
        format!("172.31.0.{last}"),
        format!("fd00:30::{last}"),
        format!("fd00:31::{last}"),
    ];
    let cidrs = [
        format!("10.244.{place}.0/24"),
        format!("fd00:244:0:{place}::/64"),
    ];
    api_node(
        ["a", "b"][place],
        &ips.each_ref().map(String::as_str),
        &cidrs.each_ref().map(String::as_str),
    )
}

pub(crate) fn start(nodes: &[Value], flags: &[&str], wire: impl Fn(&Netns, &Netns, usize)) -> Pair {
    let cluster = ["--cluster-cidr", "10.244.0.0/16,fd00:244::/48"];
    Pair::with(nodes, &[&cluster, flags].concat(), |_| {}, wire)
}

/// How many packets node a has sent by `eth0` and `eth1`.
fn sent(pair: &Pair) -> [u64; 2] {
    ["eth0", "eth1"].map(|link| {
        let link = &pair.a().node.netns.ip_json(&format!("-s link show {link}"))[0];
        link["stats64"]["tx"]["packets"].as_u64().unwrap()
    })
}

/// Pod a reaches pod b in both families by `link`, and not by the other one.
#[track_caller]
pub(crate) fn assert_goes_by(pair: &Pair, link: &str) {
    for pod in PODS_B {
        assert_pod_goes_by(pair, pod, link);
    }
}

#[track_caller]
pub(crate) fn assert_pod_goes_by(pair: &Pair, pod: &str, link: &str) {
    let a = pair.a();
    a.daemon.wait(pod, || a.pod.ask_tcp(pod).is_ok());
    let before = sent(pair);
    for _ in 0..QUESTIONS {
        pair.assert_reaches(pod);
    }
    let after = sent(pair);
    let [eth0, eth1] = [after[0] - before[0], after[1] - before[1]];
    let (on, off) = match link {
        "eth0" => (eth0, eth1),
        _ => (eth1, eth0),
    };
    assert!(
        on >= 5 * QUESTIONS && off < NOISE,
        "{pod} by {link}: eth0 {eth0}, eth1 {eth1}\n{}",
        pair.logs()
    );
}

/// The same, and it needs no other one for it.
#[track_caller]
fn assert_goes_by_alone(pair: &Pair, link: &str) {
    assert_goes_by(pair, link);
    let other = if link == "eth0" { "eth1" } else { "eth0" };
    for member in &pair.members {
        member.node.netns.ip(&format!("link set {other} down"));
    }
    for pod in PODS_B {
        pair.assert_reaches(pod);
    }
}

#[test]
fn packets_of_pods_go_by_the_uplink_that_the_operator_names() {
    if !require_root() {
        return;
    }
    for mode in ["vxlan", "direct"] {
        let pair = start(&[api(0), api(1)], &["--pod-routes", mode], second_link);
        assert_goes_by_alone(&pair, "eth0");
        let flags = ["--pod-routes", mode, "--uplink", "eth1"];
        let pair = start(&[api(0), api(1)], &flags, second_link);
        pair.a()
            .daemon
            .wait_said(&["Found the uplink", "eth1", "named by --uplink"]);
        assert_goes_by_alone(&pair, "eth1");
    }
}

#[test]
fn a_direct_path_by_the_named_uplink_is_proven_there() {
    if !require_root() {
        return;
    }
    let pair = start(&[api(0), api(1)], &["--uplink", "eth1"], second_link);
    for (range, way) in [
        ("10.244.1.0/24", "via 172.31.0.12 dev eth1"),
        ("fd00:244:0:1::/64", "via fd00:31::12 dev eth1"),
    ] {
        pair.a().wait_route(range, way);
    }
    for (range, way) in [
        ("10.244.0.0/24", "via 172.31.0.11 dev eth1"),
        ("fd00:244::/64", "via fd00:31::11 dev eth1"),
    ] {
        pair.b().wait_route(range, way);
    }
    assert_goes_by_alone(&pair, "eth1");
}

/// A routed fabric: a node's address is on no link, and both links lead to it.
fn routed(fabric: &Netns, node: &Netns, place: usize) {
    second_link(fabric, node, place);
    let (own, peer) = (11 + place, 12 - place);
    node.ip(&format!("addr add 192.0.2.{own}/32 dev lo"));
    node.ip(&format!("route add 192.0.2.{peer} via 172.30.0.{peer}"));
    node.ip(&format!(
        "route add 192.0.2.{peer} via 172.31.0.{peer} metric 9"
    ));
}

#[test]
fn of_two_links_to_the_same_address_the_overlay_takes_the_named_one() {
    if !require_root() {
        return;
    }
    let nodes = [
        ("a", "192.0.2.11", ["10.244.0.0/24", "fd00:244::/64"]),
        ("b", "192.0.2.12", ["10.244.1.0/24", "fd00:244:0:1::/64"]),
    ];
    let nodes = nodes.map(|(name, ip, cidrs)| api_node(name, &[ip], &cidrs));
    let pair = start(&nodes, &["--pod-routes", "vxlan"], routed);
    pair.a()
        .daemon
        .wait_said(&["Found the uplink", "eth0", "the default route leads there"]);
    assert_goes_by_alone(&pair, "eth0");
    let flags = ["--pod-routes", "vxlan", "--uplink", "eth1"];
    let pair = start(&nodes, &flags, routed);
    assert_goes_by_alone(&pair, "eth1");
}

/// Both links are in one network, and the node's address is the first one's.
fn twins(fabric: &Netns, node: &Netns, place: usize) {
    second_link(fabric, node, place);
    node.ip("addr flush dev eth1 scope global");
    node.ip(&format!("addr add 172.30.0.{}/24 dev eth1", 21 + place));
    node.ip(&format!(
        "addr add fd00:30::{}/64 dev eth1 nodad",
        21 + place
    ));
}

pub(crate) fn twins_on_one_switch(fabric: &Netns, node: &Netns, place: usize) {
    twins(fabric, node, place);
    fabric.ip(&format!("link set second{place} master br0"));
}

/// A strict source check finds it odd that the first link's address comes by the second one.
fn twins_on_two_switches(fabric: &Netns, node: &Netns, place: usize) {
    twins(fabric, node, place);
    node.sysctl("ipv4/conf/eth1/rp_filter", "1");
}

#[test]
fn of_two_links_in_the_same_network_the_named_one_is_taken() {
    if !require_root() {
        return;
    }
    let nodes = [0, 1].map(|place| {
        let mut node = api(place);
        let addresses = node["status"]["addresses"].as_array_mut().unwrap();
        addresses.retain(|a| !a["address"].as_str().unwrap().contains("31"));
        node
    });
    for mode in ["vxlan", "direct"] {
        let pair = start(&nodes, &["--pod-routes", mode], twins_on_one_switch);
        assert_goes_by(&pair, "eth0");
        let flags = ["--pod-routes", mode, "--uplink", "eth1"];
        let pair = start(&nodes, &flags, twins_on_one_switch);
        assert_goes_by(&pair, "eth1");
        let pair = start(&nodes, &flags, twins_on_two_switches);
        // A link of IPv6 does not answer for the other one's address.
        assert_pod_goes_by(&pair, PODS_B[0], "eth1");
    }
}
