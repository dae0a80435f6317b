//! What the link that `--uplink` names does not lead to, and what changes on it meanwhile.
//! The nodes are those of `uplink`.

use std::time::{Duration, Instant};

use seaway_testbed::{Netns, require_root};

use crate::pair::{Member, api_node};
use crate::uplink::{
    PODS_B, api, assert_goes_by, assert_pod_goes_by, second_link, start, twins_on_one_switch,
};

/// A second or two, and what a busy machine adds. Without a notice the next round comes 30 s
/// after the last one, and here a change follows a round within seconds.
const NOTICED: Duration = Duration::from_secs(20);
/// By then what a round has done itself has had its consequences.
const QUIET: Duration = Duration::from_secs(4);
const REPAIRS: &str = "seaway_pod_network_repairs_total";

/// The API's nodes, with one address each and pods of IPv4.
fn nodes(ips: [&str; 2]) -> [serde_json::Value; 2] {
    let of = |place: usize, name| {
        let cidr = format!("10.244.{place}.0/24");
        api_node(name, &[ips[place]], &[&cidr])
    };
    [of(0, "a"), of(1, "b")]
}

/// Nothing while the device is made anew, for another address of this node.
fn entries(member: &Member) -> String {
    let words = ["bridge", "fdb", "show", "dev", "seaway.vx"];
    let output = member.node.netns.run(&words);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until packets for the peer go there, as `bridge fdb` spells it.
#[track_caller]
fn wait_entry(member: &Member, there: &str) {
    let words = format!(" {there} self");
    member
        .daemon
        .wait(there, || entries(member).contains(&words));
}

#[track_caller]
fn wait_entry_soon(member: &Member, there: &str) {
    let since = Instant::now();
    wait_entry(member, there);
    let took = since.elapsed();
    assert!(took < NOTICED, "{there}: {took:?}\n{}", member.daemon.log());
}

#[test]
fn the_named_uplinks_default_route_is_no_reason_to_pass_by_another_links_route() {
    if !require_root() {
        return;
    }
    let nodes = nodes(["172.31.0.11", "172.31.0.12"]);
    for mode in ["vxlan", "direct"] {
        let flags = ["--pod-routes", mode, "--uplink", "eth0"];
        let pair = start(&nodes, &flags, second_link);
        assert_pod_goes_by(&pair, PODS_B[0], "eth1");
    }
}

/// The second network's addresses are on no link, and its default route leads to them.
fn behind_a_gateway(fabric: &Netns, node: &Netns, place: usize) {
    second_link(fabric, node, place);
    node.ip(&format!("addr add 192.0.2.{}/32 dev lo", 11 + place));
    node.ip("route del default");
    let peer = 12 - place;
    node.ip(&format!("route add default via 172.31.0.{peer} dev eth1"));
}

#[test]
fn an_address_behind_the_named_uplinks_default_route_counts_before_one_elsewhere() {
    if !require_root() {
        return;
    }
    let nodes = [0, 1].map(|place| {
        let ips = [
            format!("172.30.0.{}", 11 + place),
            format!("192.0.2.{}", 11 + place),
        ];
        let cidr = format!("10.244.{place}.0/24");
        api_node(
            ["a", "b"][place],
            &ips.each_ref().map(String::as_str),
            &[&cidr],
        )
    });
    let flags = ["--pod-routes", "vxlan", "--uplink", "eth1"];
    let pair = start(&nodes, &flags, behind_a_gateway);
    wait_entry(pair.a(), "dst 192.0.2.12 via eth1");
    wait_entry(pair.b(), "dst 192.0.2.11 via eth1");
    assert_pod_goes_by(&pair, PODS_B[0], "eth1");
}

#[test]
fn an_address_of_the_named_uplink_that_comes_back_is_noticed() {
    if !require_root() {
        return;
    }
    let flags = ["--pod-routes", "vxlan", "--uplink", "eth1"];
    let pair = start(&[api(0), api(1)], &flags, second_link);
    let a = pair.a();
    wait_entry(a, "dst 172.31.0.12 via eth1");
    a.node.netns.ip("addr del 172.31.0.11/24 dev eth1");
    wait_entry_soon(a, "dst 172.30.0.12");
    // The new device is a reason for another round, which would see the address.
    let flipped = Instant::now();
    a.daemon.wait("quiet", || flipped.elapsed() > QUIET);
    a.node.netns.ip("addr add 172.31.0.11/24 dev eth1");
    wait_entry_soon(a, "dst 172.31.0.12 via eth1");
    assert_goes_by(&pair, "eth1");
}

/// The nodes' addresses are on no link, and the first one leads to them.
fn led_to_by_the_first(fabric: &Netns, node: &Netns, place: usize) {
    second_link(fabric, node, place);
    let (own, peer) = (11 + place, 12 - place);
    node.ip(&format!("addr add 192.0.2.{own}/32 dev lo"));
    node.ip(&format!("route add 192.0.2.{peer} via 172.30.0.{peer}"));
}

#[test]
fn a_route_that_comes_to_the_named_uplink_is_followed_and_is_no_repair() {
    if !require_root() {
        return;
    }
    let nodes = nodes(["192.0.2.11", "192.0.2.12"]);
    let flags = ["--pod-routes", "vxlan", "--uplink", "eth1"];
    let pair = start(&nodes, &flags, led_to_by_the_first);
    let a = pair.a();
    wait_entry(a, "dst 192.0.2.12");
    let rounds = || {
        let told = ["Programmed the pod network", "repaired it"];
        let told = told.map(|words| a.daemon.said(&[words]));
        told.iter().sum::<usize>()
    };
    let (before, first) = (a.metric(REPAIRS), rounds());
    let second = "192.0.2.12 via 172.31.0.12 metric 9";
    for (what, there) in [
        ("add", "dst 192.0.2.12 via eth1"),
        ("del", "dst 192.0.2.12"),
        ("add", "dst 192.0.2.12 via eth1"),
    ] {
        a.node.netns.ip(&format!("route {what} {second}"));
        wait_entry_soon(a, there);
    }
    a.daemon.wait("three rounds", || rounds() >= first + 3);
    let repaired = || a.metric(REPAIRS) > before;
    assert!(!repaired(), "{}", a.daemon.log());

    // The same entry without the link is somebody else's.
    let mac = entries(a).split(' ').next().unwrap().to_owned();
    let words = format!("bridge fdb replace {mac} dev seaway.vx dst 192.0.2.12 self permanent");
    let words: Vec<_> = words.split(' ').collect();
    a.node.netns.must_run(&words);
    wait_entry_soon(a, "dst 192.0.2.12 via eth1");
    a.daemon.wait("a repair", repaired);
}

#[test]
fn neighbours_on_a_named_uplink_that_is_down_are_reached_by_another_link() {
    if !require_root() {
        return;
    }
    let nodes = nodes(["172.30.0.11", "172.30.0.12"]);
    let flags = ["--pod-routes", "direct", "--uplink", "eth1"];
    let pair = start(&nodes, &flags, twins_on_one_switch);
    let a = pair.a();
    a.wait_route("10.244.1.0/24", "via 172.30.0.12 dev eth1");
    a.node.netns.ip("link set eth1 down");
    a.wait_route("10.244.1.0/24", "via 172.30.0.12 dev eth0");
    a.node.netns.ip("link set eth1 up");
    a.wait_route("10.244.1.0/24", "via 172.30.0.12 dev eth1");
}
