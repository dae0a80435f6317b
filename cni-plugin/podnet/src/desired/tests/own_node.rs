//! What this node's own object comes to: device, addresses, or waiting.

use super::*;

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
