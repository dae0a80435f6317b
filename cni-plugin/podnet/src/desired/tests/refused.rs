//! Nodes and ranges that nobody is led to.

use super::*;

#[test]
fn a_bad_peer_is_skipped_and_hurts_nobody() {
    let good = || node("z", "172.30.0.99 fd01::99", "10.244.9.0/24");
    let range = "10.244.1.0/24";
    for (ips, cidrs, reason) in [
        (
            "172.30.0.12",
            "",
            "spec.podCIDRs: no range of a family that this node has pods of",
        ),
        ("", range, "status.addresses: no InternalIP of IPv4"),
        (
            "172.30.0.300",
            range,
            "status.addresses: InternalIP \"172.30.0.300\" is not a unicast address",
        ),
        (
            "127.0.0.1",
            range,
            "status.addresses: InternalIP \"127.0.0.1\" is not a unicast address",
        ),
        (
            "fe80::1",
            range,
            "status.addresses: InternalIP \"fe80::1\" is not a unicast address",
        ),
        (
            "172.30.0.11",
            range,
            "status.addresses: InternalIP 172.30.0.11 is this node's own",
        ),
        (
            "10.244.0.9",
            range,
            "status.addresses: InternalIP 10.244.0.9 is in this node's podCIDR 10.244.0.0/24",
        ),
        (
            "172.30.0.12",
            "10.244.1.0/99",
            "spec.podCIDRs: \"10.244.1.0/99\" is not an IP range for pods",
        ),
        (
            "172.30.0.12",
            "0.0.0.0/0",
            "spec.podCIDRs: \"0.0.0.0/0\" is not an IP range for pods",
        ),
        (
            "172.30.0.12",
            "172.30.0.96/29",
            "spec.podCIDRs: 172.30.0.96/29 contains the node address 172.30.0.99",
        ),
        (
            "172.30.0.12",
            "fd01::90/124",
            "spec.podCIDRs: fd01::90/124 contains the node address fd01::99",
        ),
        (
            "172.30.0.12",
            "10.244.0.128/25",
            "spec.podCIDRs: 10.244.0.128/25 overlaps 10.244.0.0/24 of node a",
        ),
        (
            "172.30.0.12",
            "fd00::/56",
            "spec.podCIDRs: fd00::/56 overlaps fd00::/64 of node a",
        ),
    ] {
        check(
            PodRoutes::Vxlan,
            [own(), node("b", ips, cidrs), good()],
            &format!(
                "route 10.244.9.0/24 via 10.244.9.1 at 172.30.0.99 src 10.244.0.1 node z\n\
                 skip node b: {reason}"
            ),
        );
    }
}

#[test]
fn ranges_that_pods_cannot_have_are_refused_for_peers_and_for_this_node() {
    const TABLE: [(&str, &str); 17] = [
        ("127.0.0.0/8", "loopback addresses (127.0.0.0/8, ::1)"),
        ("127.3.0.0/24", "loopback addresses (127.0.0.0/8, ::1)"),
        ("126.0.0.0/7", "loopback addresses (127.0.0.0/8, ::1)"),
        ("::/64", "unspecified addresses (0.0.0.0/8, ::)"),
        ("::/96", "unspecified addresses (0.0.0.0/8, ::)"),
        ("0.1.0.0/16", "unspecified addresses (0.0.0.0/8, ::)"),
        (
            "169.254.1.0/24",
            "link-local addresses (169.254.0.0/16, fe80::/10)",
        ),
        (
            "169.0.0.0/8",
            "link-local addresses (169.254.0.0/16, fe80::/10)",
        ),
        (
            "fe80::/64",
            "link-local addresses (169.254.0.0/16, fe80::/10)",
        ),
        (
            "febf:1::/64",
            "link-local addresses (169.254.0.0/16, fe80::/10)",
        ),
        (
            "fe00::/8",
            "link-local addresses (169.254.0.0/16, fe80::/10)",
        ),
        (
            "224.0.0.0/24",
            "multicast addresses (224.0.0.0/4, ff00::/8)",
        ),
        ("ff02::/64", "multicast addresses (224.0.0.0/4, ff00::/8)"),
        (
            "255.255.255.0/24",
            "the broadcast address (255.255.255.255)",
        ),
        (
            "::ffff:10.1.0.0/112",
            "IPv4-mapped addresses (::ffff:0:0/96)",
        ),
        ("::fffe:0:0/95", "IPv4-mapped addresses (::ffff:0:0/96)"),
        ("::/80", "unspecified addresses (0.0.0.0/8, ::)"),
    ];
    for (cidr, touched) in TABLE {
        let a = node("a", "172.30.0.11", cidr);
        let expect =
            format!("waiting node a has {cidr:?} in spec.podCIDRs, which touches {touched}");
        check(PodRoutes::Auto, [a], &expect);
        let b = node("b", "172.30.0.12", cidr);
        let expect = format!("skip node b: spec.podCIDRs: {cidr:?} touches {touched}");
        check(PodRoutes::Vxlan, [own(), b], &expect);
    }
    for good in [
        "128.0.0.0/16",
        "169.253.0.0/16",
        "240.0.0.0/24",
        "fd00:7::/64",
        "2001:db8::/64",
    ] {
        assert!(node::parse_cidr(good).is_ok(), "{good}");
    }
}

#[test]
fn of_two_claimants_the_older_one_keeps_the_range() {
    let aged = |name: &str, ip: &str, created: Option<i64>| Node {
        created,
        ..node(name, ip, "10.244.1.0/24")
    };
    for (b, c, keeps) in [
        (Some(2), Some(1), "c"),
        (Some(1), Some(2), "b"),
        // Of the same age, or none known: by name.
        (Some(1), Some(1), "b"),
        (None, None, "b"),
        (None, Some(9), "c"),
        (Some(9), None, "b"),
    ] {
        let nodes = [
            own(),
            aged("b", "172.30.0.12", b),
            aged("c", "172.30.0.13", c),
        ];
        let (via, loses) = match keeps {
            "b" => ("172.30.0.12", "c"),
            _ => ("172.30.0.13", "b"),
        };
        check(
            PodRoutes::Direct,
            nodes,
            &format!(
                "route 10.244.1.0/24 via {via} node {keeps}\n\
                 skip node {loses}: spec.podCIDRs: 10.244.1.0/24 overlaps 10.244.1.0/24 of node {keeps}"
            ),
        );
    }
}

#[test]
fn of_two_claimants_of_the_same_age_the_first_by_name_keeps_the_range() {
    let b = || node("b", "172.30.0.12", "10.244.1.0/24");
    let c = || node("c", "172.30.0.13", "10.244.0.0/23 10.244.2.0/24");
    let expect = "route 10.244.1.0/24 via 172.30.0.12 node b\n\
         route 10.244.2.0/24 via 172.30.0.13 node c\n\
         skip node c: spec.podCIDRs: 10.244.0.0/23 overlaps 10.244.0.0/24 of node a";
    check(PodRoutes::Direct, [own(), b(), c()], expect);
    check(PodRoutes::Direct, [c(), b(), own()], expect);
}
