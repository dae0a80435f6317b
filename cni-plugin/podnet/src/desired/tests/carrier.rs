//! Which family carries the overlay, and what peers of the other one get.

use super::*;

#[test]
fn the_overlays_carrier_does_not_depend_on_the_order_of_addresses() {
    for (a, b) in [
        ("fd01::11 172.30.0.11", "172.30.0.12 fd01::12"),
        ("172.30.0.11 fd01::11", "fd01::12 172.30.0.12"),
        ("fd01::11 172.30.0.11", "fd01::12 172.30.0.12"),
        ("fd01::11 172.30.0.11", "172.30.0.12"),
        ("172.30.0.11", "fd01::12 172.30.0.12"),
    ] {
        let b = node("b", b, "10.244.1.0/24");
        check(
            PodRoutes::Vxlan,
            [node("a", a, "10.244.0.0/24"), b],
            "route 10.244.1.0/24 via 10.244.1.1 at 172.30.0.12 src 10.244.0.1 node b",
        );
    }
    check(
        PodRoutes::Vxlan,
        [
            node("a", "fd01::11", "10.244.0.0/24"),
            node("b", "fd01::12", "10.244.1.0/24"),
        ],
        "route 10.244.1.0/24 via 10.244.1.1 at fd01::12 src 10.244.0.1 node b",
    );
}

#[test]
fn a_peer_whose_overlay_has_another_carrier_is_skipped_on_both_sides() {
    let of_v4 = "status.addresses: its overlay runs over IPv4, this node's over IPv6";
    let of_v6 = "status.addresses: its overlay runs over IPv6, this node's over IPv4";
    for (a, b, reason) in [
        ("172.30.0.11 fd01::11", "fd01::12", of_v6),
        ("172.30.0.11", "fd01::12", of_v6),
        ("fd01::11", "fd01::12 172.30.0.12", of_v4),
        ("fd01::11", "172.30.0.12", of_v4),
    ] {
        let b = node("b", b, "10.244.1.0/24 fd00:0:0:1::/64");
        let a = node("a", a, "10.244.0.0/24 fd00::/64");
        let expect = format!("skip node b: {reason}");
        check(PodRoutes::Vxlan, [a, b], &expect);
    }
}

#[test]
fn a_direct_path_needs_no_common_carrier() {
    let a = || node("a", "172.30.0.11 fd01::11", "10.244.0.0/24 fd00::/64");
    let b = || node("b", "fd01::12", "10.244.1.0/24 fd00:0:0:1::/64");
    let skip = "skip node b: status.addresses: its overlay runs over IPv6, this node's over IPv4";
    let probe = "probe fd00:0:0:1::1 via fd01::12 from fd00::1";
    // Nobody has proven it; asking costs nothing.
    check(PodRoutes::Auto, [a(), b()], &format!("{probe}\n{skip}"));
    let proven: Paths = [("b".to_owned(), Family::V6)].into_iter().collect();
    let route = "route fd00:0:0:1::/64 via fd01::12 src fd00::1 node b";
    assert_eq!(
        text([a(), b()], &settings(PodRoutes::Auto), &proven),
        format!("{route}\n{probe}\n{skip}")
    );
    check(
        PodRoutes::Direct,
        [a(), b()],
        "route fd00:0:0:1::/64 via fd01::12 node b\n\
         skip node b: status.addresses: no InternalIP of IPv4",
    );
}

#[test]
fn a_way_that_only_answers_take_is_no_path_in_use() {
    let nodes = [own(), node("b", "fd01::12", "fd00:0:0:1::/64")];
    let nodes = nodes.map(|n| (n.name.clone(), n)).into();
    let want = desired(
        "a",
        &nodes,
        &settings(PodRoutes::Auto),
        &Paths::default(),
        None,
    )
    .unwrap();
    assert!(!want.probes[0].routed && want.peers.is_empty());
    let via: IpAddr = "fd01::12".parse().unwrap();
    for (to, used) in [("fd00:0:0:1::1/128", false), ("fd00:0:0:1::/64", true)] {
        let routes = [(to.parse().unwrap(), via)].into();
        let paths = want.in_use(&routes);
        assert_eq!(paths.is_direct("b", Family::V6), used, "{to}");
    }
}
