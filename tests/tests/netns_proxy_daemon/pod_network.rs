//! The pod network between two daemons: which path packets take, and what happens when
//! something changes under way.

use std::time::{Duration, Instant};

use crate::pair::{Pair, api_node, drop_pod_addresses, pass_pod_addresses, plug};
use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};

#[path = "pod_network/changes.rs"]
mod changes;
#[path = "pod_network/foreign.rs"]
mod foreign;
#[path = "pod_network/ill.rs"]
mod ill;
#[path = "pod_network/repairs.rs"]
mod repairs;

const TO_B: &str = "10.244.1.0/24";
const POD_B: &str = "10.244.1.5:80";
const OVERLAY: &str = "via 10.244.1.1 dev seaway.vx";
const DIRECT: &str = "via 172.30.0.12 dev eth0";

/// A change of this node's own side: it asks again at once, not in 30 s.
fn poke(pair: &Pair, mtu: u32) {
    for member in &pair.members {
        member.node.netns.ip(&format!("link set eth0 mtu {mtu}"));
    }
}

#[test]
fn on_a_cloud_that_drops_pod_addresses_it_stays_on_the_overlay_until_they_pass() {
    if !require_root() {
        return;
    }
    let pair = Pair::start_behind(&[], drop_pod_addresses);
    pair.a().wait_route(TO_B, OVERLAY);
    pair.b()
        .wait_route("10.244.0.0/24", "via 10.244.0.1 dev seaway.vx");
    pair.assert_reaches(POD_B);
    pair.a().daemon.wait("a failed probe", || {
        pair.a().metric("seaway_pod_network_probe_failures_total") >= 1.0
    });
    assert!(pair.a().route(TO_B).contains(OVERLAY));
    assert!(
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"vxlan\"}")
            > 0.5
    );

    pass_pod_addresses(&pair.fabric);
    poke(&pair, 1400);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    pair.assert_reaches(POD_B);
    assert!(
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"direct\"}")
            > 0.5
    );
    // More than once where a busy machine has lost answers meanwhile.
    let words = ["Pod addresses pass without the overlay", "b/IPv4"];
    assert!(pair.a().daemon.said(&words) >= 1);
    // The reserved address is what the node itself asks pods from.
    assert!(pair.a().route(TO_B).contains("src 10.244.0.1"));
}

#[test]
fn a_path_that_begins_to_drop_is_left_within_seconds_and_taken_again() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&[]);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    drop_pod_addresses(&pair.fabric);
    let broken = Instant::now();
    pair.a().wait_route(TO_B, OVERLAY);
    pair.b().wait_route("10.244.0.0/24", "dev seaway.vx");
    let took = broken.elapsed();
    // Nine, and what a machine adds on which others kill daemons; less than the 30 s from one
    // attempt to leave the overlay to the next.
    assert!(took < Duration::from_secs(29), "{took:?}");
    pair.assert_reaches(POD_B);
    // A busy machine may have lost answers before that as well.
    let words = ["WARN", "Pod addresses do not pass any more", "b/IPv4"];
    assert!(pair.a().daemon.said(&words) >= 1);
    pass_pod_addresses(&pair.fabric);
    poke(&pair, 1400);
    pair.a().wait_route(TO_B, DIRECT);
    pair.assert_reaches(POD_B);
}

#[test]
fn a_restart_keeps_the_paths_that_were_proven() {
    if !require_root() {
        return;
    }
    let mut pair = Pair::start(&[]);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    let log = pair.a().node.path("moves");
    let moves = std::fs::File::create(&log).unwrap();
    let mut watch = pair.a().node.netns.command("ip");
    let mut watch = watch
        .args(["monitor", "route"])
        .stdout(moves)
        .spawn()
        .unwrap();
    pair.restart_a(&[]);
    pair.a().daemon.wait_said(&["Found the uplink"]);
    pair.a().daemon.wait("a probe", || {
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"direct\"}")
            > 0.5
    });
    // Whatever was going to change has changed when a Node that comes now has its route.
    pair.apply(&api_node("new", &["172.30.0.77"], &["10.244.9.0/24"]));
    pair.a().wait_route("10.244.9.0/24", "dev seaway.vx");
    let read = || std::fs::read_to_string(&log).unwrap();
    let a = &pair.a().daemon;
    a.wait("the monitor", || read().contains("10.244.9.0/24"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    let moves = read();
    assert!(!moves.contains(TO_B), "{moves}\n{}", pair.logs());
    assert!(moves.contains("10.244.9.0/24"), "{moves}");
    assert!(pair.a().route(TO_B).contains(DIRECT));
}

#[test]
fn both_families_go_direct_each_by_its_own_proof() {
    if !require_root() {
        return;
    }
    let pair = Pair::start_dual(&[]);
    let v6 = ("fd00:244:0:1::/64", "[fd00:244:0:1::5]:80");
    pair.a().wait_route(TO_B, DIRECT);
    pair.a().wait_route(v6.0, "via fd00:30::12 dev eth0");
    pair.b()
        .wait_route("fd00:244::/64", "via fd00:30::11 dev eth0");
    pair.assert_reaches(POD_B);
    pair.assert_reaches(v6.1);
    let ranges = &pair.a().conf()["ipam"]["ranges"];
    assert_eq!(ranges[0]["subnet"], "10.244.0.0/24");
    assert_eq!(ranges[1]["subnet"], "fd00:244::/64");
    assert_eq!(pair.a().node.get("/healthz").unwrap().0, 200);
}

#[test]
fn a_node_with_another_cni_is_reached_directly_and_hurts_nobody() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&[]);
    // A bridge plugin's node: its gateway is the first address of its range, and its
    // routes are somebody's plain ones.
    let other = Netns::new("other");
    plug(&pair.fabric, &other, &["172.30.0.13/24".to_owned()]);
    other.ip("link add cni0 type bridge");
    other.ip("addr add 10.244.2.1/24 dev cni0");
    other.ip("link set cni0 up");
    other.sysctl("ipv4/ip_forward", "1");
    other.ip("route add 10.244.0.0/24 via 172.30.0.11");
    other.ip("route add 10.244.1.0/24 via 172.30.0.12");
    pair.apply(&api_node("other", &["172.30.0.13"], &["10.244.2.0/24"]));
    pair.a()
        .wait_route("10.244.2.0/24", "via 172.30.0.13 dev eth0");
    pair.a().wait_route(TO_B, DIRECT);
    pair.assert_reaches(POD_B);
    let _server = other.serve(Tcp, "10.244.2.1:80", "other");
    assert_eq!(pair.a().pod.ask_tcp("10.244.2.1:80").unwrap(), "other");
}
