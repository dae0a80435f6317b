//! Which family carries the overlay, and what fits through.

use std::net::IpAddr;
use std::time::Duration;

use seaway_podnet::{
    Desired, EchoSocket, Family, PROBE_MARK, PodNetworkError, PodRoutes, SkipReason,
};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{require_root, wait_until};

use crate::net::{Net, Stack, at, node_ip, pod_ip};

/// Why `node` leads nowhere to `peer`.
fn skipped(want: &Desired, peer: &str) -> Vec<SkipReason> {
    let of_peer = want.skipped.iter().filter(|skip| skip.node == peer);
    of_peer.map(|skip| skip.reason.clone()).collect()
}

#[track_caller]
fn reaches(net: &Net, client: usize, server: usize, family: Family) {
    let address = at(&pod_ip(server, family, 5), 80);
    let node = &net.nodes[server];
    let _server = node.pod.serve(Protocol::Tcp, &address, node.name);
    let answer = net.nodes[client].pod.ask(Protocol::Tcp, &address);
    let answer = answer.unwrap_or_else(|e| panic!("{client} to {address}: {e}"));
    assert_eq!(answer.client.ip().to_string(), pod_ip(client, family, 5));
}

/// Asks as the daemon does, again and again: the first echoes of a new network may be lost
/// while neighbours look for each other.
fn probe(from: &str, to: &str) -> anyhow::Result<()> {
    let (from, to) = (from.parse()?, to.parse::<IpAddr>()?);
    let socket = EchoSocket::open(from, PROBE_MARK, 83)?;
    wait_until(Duration::from_secs(5), "the answer", || {
        socket.send(to, 1, 1400)?;
        let heard = socket.receive()?.filter(|echo| echo.from == to);
        Ok(heard.map(drop).ok_or_else(|| format!("{to} is silent")))
    })
}

/// c has IPv6 alone, in a cluster of both.
fn one_of_v6(mode: PodRoutes) -> Net {
    let mut net = Net::new(mode, Stack::Dual, Stack::Dual);
    net.nodes[2].netns.ip("-4 addr flush dev eth0");
    net.api[2].internal_ips = vec![node_ip(2, Family::V6)];
    net
}

#[test]
fn nodes_that_list_their_addresses_in_different_order_reach_each_other() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Vxlan, Stack::Dual, Stack::Dual);
    net.drop_pod_addresses();
    net.api[1].internal_ips.reverse();
    net.apply_all();
    for family in [Family::V4, Family::V6] {
        for (client, server) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
            reaches(&net, client, server, family);
        }
    }
}

#[test]
fn a_node_of_ipv6_alone_is_skipped_on_both_sides_and_the_others_are_not() {
    if !require_root() {
        return;
    }
    let net = one_of_v6(PodRoutes::Vxlan);
    net.apply_all();
    let (v4, v6) = (Family::V4, Family::V6);
    for (node, peer, reason) in [
        (0, "c", SkipReason::OtherCarrier { peer: v6, own: v4 }),
        (2, "a", SkipReason::OtherCarrier { peer: v4, own: v6 }),
    ] {
        assert_eq!(skipped(&net.desired(node), peer), [reason]);
    }
    for family in [v4, v6] {
        reaches(&net, 0, 1, family);
        let address = at(&pod_ip(2, family, 5), 80);
        assert!(net.nodes[0].pod.ask_tcp(&address).is_err());
    }
}

#[test]
fn a_direct_path_to_a_node_of_another_carrier_can_be_proven_and_serves() {
    if !require_root() {
        return;
    }
    let mut net = one_of_v6(PodRoutes::Auto);
    net.apply_all();
    let (own, peer) = (pod_ip(0, Family::V6, 1), pod_ip(2, Family::V6, 1));
    for (node, from, to) in [(0, &own, &peer), (2, &peer, &own)] {
        net.nodes[node].netns.enter(|| probe(from, to)).unwrap();
    }
    for (node, name) in [(0, "c"), (2, "a")] {
        net.paths.set(name, Family::V6, true);
        let skipped = skipped(&net.desired(node), name);
        assert_eq!(skipped.len(), 1, "{skipped:?}");
    }
    net.apply_all();
    reaches(&net, 0, 2, Family::V6);
    reaches(&net, 2, 0, Family::V6);
    assert!(!net.apply(0).any());
    // The way of answers has gone into the route.
    let left = net.nodes[0].netns.ip_json(&format!("-6 route show {peer}"));
    assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
}

#[test]
fn an_uplink_that_is_too_small_for_ipv6_is_named() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Vxlan, Stack::V4, Stack::Dual);
    let a = &net.nodes[0].netns;
    a.ip("link set eth0 mtu 1329");
    let error = net.try_apply(0).unwrap_err();
    assert!(
        matches!(error, PodNetworkError::UplinkTooSmall { .. }),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "make the pod network for IPv6: uplink eth0 has MTU 1329, but 1330 are needed: \
         1280 and the overlay's headers"
    );
    a.ip("link set eth0 mtu 1330");
    net.apply(0);
    assert_eq!(net.pod_mtu(0), 1280);
}
