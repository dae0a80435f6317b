//! Plain routes between nodes, masquerade, and the MTU.

use std::collections::BTreeMap;

use seaway_podnet::{Desired, Family, Node, PodNetwork, PodNetworkError, PodRoutes, SkipReason};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::net::{Net, Stack, at, node_ip, pod_ip};

const POD_ROUTE: &str = "10.244.0.5 swtest \"83\"";
const TO_B: &str = "10.244.1.0/24 172.30.0.12 \"83\"";
const TO_C: &str = "10.244.2.0/24 172.30.0.13 \"83\"";

fn node(name: &str, ip: &str, cidr: &str) -> Node {
    Node {
        name: name.to_owned(),
        created: None,
        internal_ips: vec![ip.to_owned()],
        pod_cidrs: vec![cidr.to_owned()],
    }
}

fn v4() -> Net {
    Net::new(PodRoutes::Direct, Stack::V4, Stack::V4)
}

/// Objects written and removed on node a.
#[track_caller]
fn apply(net: &Net) -> (usize, usize) {
    let changes = net.apply(0);
    (changes.replaced, changes.removed)
}

#[test]
fn pods_on_two_nodes_reach_each_other_with_their_own_addresses() {
    if !require_root() {
        return;
    }
    for stack in [Stack::V4, Stack::V6, Stack::Dual] {
        let net = Net::new(PodRoutes::Direct, stack, stack);
        for family in stack.families() {
            let address = at(&pod_ip(1, *family, 5), 80);
            let before = net.nodes[0].pod.ask_tcp(&address);
            assert!(
                before.is_err(),
                "the fixture itself leads to pods: {before:?}"
            );
        }
        net.apply_all();
        for family in stack.families() {
            let address = at(&pod_ip(1, *family, 5), 80);
            let _server = net.nodes[1].pod.serve(Protocol::Tcp, &address, "b");
            let answer = net.nodes[0].pod.ask(Protocol::Tcp, &address).unwrap();
            assert_eq!(answer.client.ip().to_string(), pod_ip(0, *family, 5));
            // The node itself has its own address, which b's pods can answer.
            let answer = net.nodes[0].netns.ask(Protocol::Tcp, &address).unwrap();
            assert_eq!(answer.client.ip().to_string(), node_ip(0, *family));
        }
    }
}

#[test]
fn what_leaves_the_cluster_has_the_nodes_address() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Direct, Stack::Dual, Stack::Dual);
    net.apply_all();
    for (family, world) in [(Family::V4, "172.30.0.99"), (Family::V6, "fd01::99")] {
        for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 53)] {
            let address = at(world, port);
            let _server = net.world.serve(protocol, &address, "world");
            let answer = net.nodes[0].pod.ask(protocol, &address).unwrap();
            assert_eq!(answer.client.ip().to_string(), node_ip(0, family));
        }
    }
}

#[test]
fn destinations_that_the_operator_names_see_the_pods_address() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Direct, Stack::Dual, Stack::Dual);
    let named = ["172.30.0.99/32", "fd01::99/128"];
    net.settings.non_masquerade_cidrs = named.map(|cidr| cidr.parse().unwrap()).to_vec();
    net.apply_all();
    net.world.ip("route add 10.244.0.0/24 via 172.30.0.11");
    net.world.ip("-6 route add fd00::/64 via fd01::11");
    net.world.ip("addr add 172.30.0.98/24 dev eth0");
    net.world.ip("addr add fd01::98/64 dev eth0 nodad");
    for (family, named, other) in [
        (Family::V4, "172.30.0.99", "172.30.0.98"),
        (Family::V6, "fd01::99", "fd01::98"),
    ] {
        for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 53)] {
            for (ip, expect) in [(named, pod_ip(0, family, 5)), (other, node_ip(0, family))] {
                let address = at(ip, port);
                let _server = net.world.serve(protocol, &address, "world");
                let answer = net.nodes[0].pod.ask(protocol, &address).unwrap();
                assert_eq!(answer.client.ip().to_string(), expect, "{address}");
            }
        }
    }
}

#[test]
fn routes_follow_the_nodes_and_nothing_is_done_twice() {
    if !require_root() {
        return;
    }
    let mut net = v4();
    // Two peers, and the own range.
    assert_eq!(apply(&net), (3, 0));
    assert_eq!(net.nodes[0].routes("-4"), [POD_ROUTE, TO_B, TO_C]);
    let again = net.apply(0);
    assert!(!again.any(), "{again:?}");

    // b gets another address, and d joins.
    net.api[1] = node("b", "172.30.0.22", "10.244.1.0/24");
    net.api.push(node("d", "172.30.0.14", "10.244.3.0/24"));
    assert_eq!(apply(&net), (2, 0));
    let moved = "10.244.1.0/24 172.30.0.22 \"83\"";
    let joined = "10.244.3.0/24 172.30.0.14 \"83\"";
    assert_eq!(net.nodes[0].routes("-4"), [POD_ROUTE, moved, TO_C, joined]);
    // All leave: this node's pods must not lose their own routes by it.
    net.api.truncate(1);
    assert_eq!(apply(&net), (0, 3));
    assert_eq!(net.nodes[0].routes("-4"), [POD_ROUTE]);
}

#[test]
fn a_peer_behind_a_router_is_skipped_and_foreign_routes_stay() {
    if !require_root() {
        return;
    }
    let mut net = v4();
    let a = &net.nodes[0];
    let foreign = [
        "10.244.7.0/24 172.30.0.99 \"static\"",
        "10.99.0.0/16 172.30.0.99 \"static\"",
    ];
    a.netns
        .ip("route add 10.244.7.0/24 via 172.30.0.99 proto static");
    a.netns
        .ip("route add 10.99.0.0/16 via 172.30.0.99 proto static");
    // One that is in the way, one whose address no link leads to, one behind a router.
    net.api.push(node("aa", "172.30.0.17", "10.244.7.0/24"));
    net.api.push(node("ab", "192.0.2.1", "10.244.8.0/24"));
    net.api.push(node("ac", "10.99.0.1", "10.244.9.0/24"));
    let changes = net.try_apply(0).unwrap();
    assert_eq!(changes.replaced, 3);
    assert!(
        matches!(changes.failed[..], [PodNetworkError::ForeignRoute { .. }]),
        "{:?}",
        changes.failed
    );
    let skipped: Vec<_> = changes
        .skipped
        .iter()
        .map(|skip| skip.node.as_str())
        .collect();
    assert_eq!(skipped, ["ab", "ac"]);
    let reason = &changes.skipped[0].reason;
    assert!(matches!(reason, SkipReason::NotOnLink { .. }), "{reason}");
    let routes = net.nodes[0].routes("-4");
    for route in foreign.iter().chain(&[TO_B, TO_C]) {
        assert!(
            routes.contains(&(*route).to_owned()),
            "{route} not in {routes:?}"
        );
    }
}

#[test]
fn an_uplink_that_changes_takes_the_routes_along() {
    if !require_root() {
        return;
    }
    let net = v4();
    net.apply(0);
    // The same network, by another card.
    let a = &net.nodes[0].netns;
    net.fabric.ip(&format!(
        "link add p-a2 type veth peer name eth1 netns {}",
        a.name()
    ));
    net.fabric.ip("link set p-a2 master br0 up");
    a.ip("link set eth1 up");
    a.ip("addr del 172.30.0.11/24 dev eth0");
    a.ip("addr add 172.30.0.11/24 dev eth1");
    net.apply(0);
    let routes = a.ip_json("route show 10.244.1.0/24");
    assert_eq!(routes[0]["dev"], "eth1", "{routes}");
    assert!(!net.apply(0).any());
}

#[test]
fn the_mtu_is_the_uplinks() {
    if !require_root() {
        return;
    }
    let net = v4();
    let a = &net.nodes[0].netns;
    a.ip("link set eth0 mtu 1420");
    let mtu = |want: &Desired| a.enter(|| PodNetwork::open().unwrap().pod_mtu(want));
    let want = net.desired(0);
    assert_eq!(mtu(&want).unwrap(), 1420);
    let chosen = Desired {
        mtu: Some(1300),
        ..want.clone()
    };
    assert_eq!(mtu(&chosen).unwrap(), 1300);
    // Behind a translation the InternalIP is on no link; the default route tells.
    let elsewhere = Desired {
        node_ips: vec!["192.0.2.7".parse().unwrap()],
        ..want
    };
    let text = mtu(&elsewhere).unwrap_err().to_string();
    assert!(text.contains("192.0.2.7"), "{text}");
    // A node that nobody reaches may have no uplink, and has pods all the same.
    let alone = Desired {
        node_ips: Vec::new(),
        peers: BTreeMap::new(),
        ..elsewhere.clone()
    };
    assert_eq!(mtu(&alone).unwrap(), 1500);
    a.ip("route add default via 172.30.0.99");
    assert_eq!(mtu(&elsewhere).unwrap(), 1420);
    assert_eq!(mtu(&alone).unwrap(), 1420);
}
