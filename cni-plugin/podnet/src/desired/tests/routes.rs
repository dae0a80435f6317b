//! How other nodes' pods are led to, and what is not masqueraded.

use super::*;

#[test]
fn vxlan_leads_by_the_reserved_addresses() {
    let nodes = [
        own(),
        node(
            "b",
            "172.30.0.12",
            "10.244.1.7/24 fd00:0:0:1::/64 10.245.1.0/24",
        ),
        // Its other address does not matter.
        node("c", "fd01::13 172.30.0.13", "10.244.2.0/24"),
    ];
    check(
        PodRoutes::Vxlan,
        nodes,
        "route 10.244.1.0/24 via 10.244.1.1 at 172.30.0.12 src 10.244.0.1 node b\n\
         route fd00:0:0:1::/64 via fd00:0:0:1::1 at 172.30.0.12 src fd00::1 node b\n\
         route 10.245.1.0/24 via 10.245.1.1 at 172.30.0.12 src 10.244.0.1 node b\n\
         route 10.244.2.0/24 via 10.244.2.1 at 172.30.0.13 src 10.244.0.1 node c",
    );
}

#[test]
fn direct_leads_by_the_address_of_the_same_family() {
    let nodes = [
        own(),
        node("b", "fd01::12 172.30.0.12", "10.244.1.0/24 fd00:0:0:1::/64"),
        node("c", "172.30.0.13", "10.244.2.0/24 fd00:0:0:2::/64"),
    ];
    check(
        PodRoutes::Direct,
        nodes,
        "route 10.244.1.0/24 via 172.30.0.12 node b\n\
         route fd00:0:0:1::/64 via fd01::12 node b\n\
         route 10.244.2.0/24 via 172.30.0.13 node c\n\
         skip node c: status.addresses: no InternalIP of IPv6",
    );
}

#[test]
fn auto_takes_the_proven_path_for_one_peer_and_family() {
    let b = || {
        node(
            "b",
            "172.30.0.12 fd01::12",
            "10.244.1.0/24 10.245.1.0/24 fd00:0:0:1::/64",
        )
    };
    let c = || node("c", "172.30.0.13", "10.244.2.0/24 fd00:0:0:2::/64");
    let paths: Paths = [("b".to_owned(), Family::V4), ("c".to_owned(), Family::V6)]
        .into_iter()
        .collect();
    // c has no address of IPv6, so nothing can have been proven about it.
    let got = text([own(), b(), c()], &settings(PodRoutes::Auto), &paths);
    assert_eq!(
        got,
        "route 10.244.1.0/24 via 172.30.0.12 src 10.244.0.1 node b\n\
         route 10.245.1.0/24 via 172.30.0.12 src 10.244.0.1 node b\n\
         route fd00:0:0:1::/64 via fd00:0:0:1::1 at 172.30.0.12 src fd00::1 node b\n\
         route 10.244.2.0/24 via 10.244.2.1 at 172.30.0.13 src 10.244.0.1 node c\n\
         route fd00:0:0:2::/64 via fd00:0:0:2::1 at 172.30.0.13 src fd00::1 node c\n\
         probe 10.244.1.1 via 172.30.0.12 from 10.244.0.1\n\
         probe fd00:0:0:1::1 via fd01::12 from fd00::1\n\
         probe 10.244.2.1 via 172.30.0.13 from 10.244.0.1"
    );
    // What was proven before the operator chose counts no more.
    let vxlan = text([own(), b()], &settings(PodRoutes::Vxlan), &paths);
    assert!(vxlan.contains("via 10.244.1.1 at 172.30.0.12"), "{vxlan}");
    assert!(!vxlan.contains("probe"), "{vxlan}");
}

#[test]
fn only_families_that_this_node_has_pods_of_are_led_to() {
    let own = || node("a", "172.30.0.11", "10.244.0.0/24");
    check(
        PodRoutes::Vxlan,
        [
            own(),
            node("b", "172.30.0.12", "fd00:0:0:1::/64 10.244.1.0/24"),
            node("c", "172.30.0.13", "fd00:0:0:2::/64"),
        ],
        "route 10.244.1.0/24 via 10.244.1.1 at 172.30.0.12 src 10.244.0.1 node b\n\
         skip node c: spec.podCIDRs: no range of a family that this node has pods of",
    );
}

#[test]
fn pods_outside_the_cluster_ranges_are_not_masqueraded_either() {
    let nodes = [
        own(),
        node("b", "172.30.0.12", "10.244.1.0/24 10.250.1.0/24"),
    ];
    let nodes = nodes.map(|n| (n.name.clone(), n)).into();
    let settings = Settings {
        non_masquerade_cidrs: vec!["192.0.2.0/24".parse().unwrap()],
        ..settings(PodRoutes::Vxlan)
    };
    let got = desired("a", &nodes, &settings, &Paths::default(), None).unwrap();
    let got: Vec<_> = got.non_masquerade.iter().map(ToString::to_string).collect();
    assert_eq!(
        got,
        [
            "10.244.0.0/16",
            "10.250.1.0/24",
            "192.0.2.0/24",
            "fd00::/48"
        ]
    );
}
