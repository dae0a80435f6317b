use super::*;
use crate::{Paths, PodRoutes, Settings};

mod carrier;
mod uplink;

fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn node(name: &str, ips: &str, cidrs: &str) -> Node {
    Node {
        name: name.to_owned(),
        created: None,
        internal_ips: list(ips),
        pod_cidrs: list(cidrs),
    }
}

fn own() -> Node {
    node("a", "172.30.0.11 fd01::11", "10.244.0.0/24 fd00:0::/64")
}

fn settings(mode: PodRoutes) -> Settings {
    let cluster = ["10.244.0.0/16", "fd00::/48"];
    Settings {
        mode,
        cluster_cidrs: cluster.map(|cidr| cidr.parse().unwrap()).to_vec(),
        ..Settings::default()
    }
}

/// What node `a` wants, or what it waits for, as text; without its own lines.
fn text(nodes: impl IntoIterator<Item = Node>, settings: &Settings, paths: &Paths) -> String {
    let nodes = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
    let got = match desired("a", &nodes, settings, paths, None) {
        Ok(desired) => desired.to_string(),
        Err(waiting) => format!("waiting {waiting}\n"),
    };
    let own = ["pod-cidr", "vxlan", "address", "no-masquerade"];
    let lines = got.lines();
    let lines = lines.filter(|line| !own.iter().any(|own| line.starts_with(own)));
    lines.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(mode: PodRoutes, nodes: impl IntoIterator<Item = Node>, expect: &str) {
    assert_eq!(text(nodes, &settings(mode), &Paths::default()), expect);
}

#[test]
fn own_node_alone_has_its_device_and_its_masquerade() {
    let nodes = BTreeMap::from([("a".to_owned(), own())]);
    let got = desired(
        "a",
        &nodes,
        &settings(PodRoutes::Auto),
        &Paths::default(),
        None,
    )
    .unwrap();
    assert_eq!(
        got.to_string(),
        "pod-cidr 10.244.0.0/24\n\
         pod-cidr fd00::/64\n\
         vxlan seaway.vx vni 83 port 8472 local 172.30.0.11\n\
         address 10.244.0.1 dev seaway.vx\n\
         address fd00::1 dev seaway.vx\n\
         no-masquerade 10.244.0.0/16\n\
         no-masquerade fd00::/48\n"
    );
    let direct = desired(
        "a",
        &nodes,
        &settings(PodRoutes::Direct),
        &Paths::default(),
        None,
    )
    .unwrap();
    assert_eq!((direct.overlay, direct.node_ips), (None, got.node_ips));
}

#[test]
fn the_overlays_device_has_the_name_and_address_that_peers_expect() {
    let nodes = BTreeMap::from([("a".to_owned(), own())]);
    let got = desired(
        "a",
        &nodes,
        &settings(PodRoutes::Auto),
        &Paths::default(),
        None,
    )
    .unwrap();
    let overlay = got.overlay.unwrap();
    assert_eq!(overlay.mac, vtep_mac("a"));
    // printf a | sha256sum, the first byte made a local unicast one.
    assert_eq!(vtep_mac("a").to_string(), "ca:97:81:12:ca:1b");
    assert_ne!(vtep_mac("a"), vtep_mac("b"));
    assert_eq!(overlay.overhead(), 50);
    let chosen = Settings {
        node_ips: vec!["fd01::7".parse().unwrap(), "192.0.2.7".parse().unwrap()],
        ..settings(PodRoutes::Auto)
    };
    let got = desired("a", &nodes, &chosen, &Paths::default(), None).unwrap();
    let [v6, v4] = chosen.node_ips[..] else {
        panic!()
    };
    assert_eq!(got.node_ips, [v4, v6]);
    let overlay = got.overlay.unwrap();
    assert_eq!((overlay.local, overlay.overhead()), (v4, 50));
    let chosen = Settings {
        node_ips: vec![v6],
        ..chosen
    };
    let got = desired("a", &nodes, &chosen, &Paths::default(), None).unwrap();
    let overlay = got.overlay.unwrap();
    assert_eq!((overlay.local, overlay.overhead()), (v6, 70));
}

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

#[test]
fn nothing_is_desired_before_the_own_ranges_are_known() {
    let check = |node: Node, expect: &str| check(PodRoutes::Auto, [node], expect);
    check(
        node("b", "172.30.0.12", "10.244.1.0/24"),
        "waiting node a is not registered",
    );
    check(
        node("a", "172.30.0.11", ""),
        "waiting node a has no range in spec.podCIDRs",
    );
    check(
        node("a", "", "10.244.0.0/24"),
        "waiting node a has no InternalIP in status.addresses",
    );
    for bad in [
        "10.244.0.0/33",
        "10.244.0.0",
        "0.0.0.0/0",
        "::/0",
        "10.244.0.0/31",
        "cat",
    ] {
        let ranges = format!("fd00::/64 {bad}");
        check(
            node("a", "172.30.0.11", &ranges),
            &format!(
                "waiting node a has {bad:?} in spec.podCIDRs, which is not an IP range for pods"
            ),
        );
    }
    for (ranges, range, other) in [
        ("172.30.0.0/24", "172.30.0.0/24", "172.30.0.11/32"),
        ("fd01::/64", "fd01::/64", "fd01::11/128"),
        (
            "10.244.0.0/24 10.244.0.128/25",
            "10.244.0.128/25",
            "10.244.0.0/24",
        ),
    ] {
        check(
            node("a", "172.30.0.11 fd01::11", ranges),
            &format!("waiting node a has {range} in spec.podCIDRs, which overlaps {other}"),
        );
    }
}

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
