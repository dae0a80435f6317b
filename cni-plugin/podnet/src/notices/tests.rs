use seaway_netlink::Rule;

use super::*;

fn link(index: u32, name: &str) -> Link {
    Link {
        index: IfIndex(index),
        name: name.to_owned(),
        alias: None,
        mac: None,
        mtu: 1500,
        up: true,
        carrier: true,
        operational: true,
        group: 0,
        kind: None,
        peer: None,
        peer_netns: None,
        qdisc: None,
    }
}

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn watched() -> Watched {
    Watched {
        uplink: Some((IfIndex(2), "eth0".to_owned())),
        name: None,
        device: Some("seaway.vx".to_owned()),
        addresses: ["172.30.0.11", "10.244.0.1"]
            .map(|a| a.parse().unwrap())
            .into(),
        named: None,
        routes: ["10.244.1.0/24"].map(|a| a.parse().unwrap()).into(),
        families: [Family::V4].into(),
        neighbours: [("10.244.1.1".parse().unwrap(), PEER)].into(),
        entries: [(PEER, ("172.30.0.12".parse().unwrap(), None))].into(),
    }
}

fn address(network: &str) -> Address {
    Address::new(IfIndex(9), network.parse().unwrap())
}

fn route(to: &str, via: Option<&str>, protocol: RouteProtocol) -> Route {
    let mut route = Route::to(to.parse().unwrap());
    route.gateway = via.map(|via| via.parse().unwrap());
    route.protocol = protocol;
    route
}

#[test]
fn what_others_do_to_our_objects_concerns_and_what_pods_bring_does_not() {
    let (ours, boot) = (RouteProtocol::SEAWAY, RouteProtocol::BOOT);
    let peer = |protocol| route("10.244.1.0/24", Some("172.30.0.12"), protocol);
    let pod = || route("10.244.0.5/32", None, ours);
    let mut probe = route("10.244.1.1/32", None, ours);
    probe.table = TableId(83);
    let rule = |protocol| Rule {
        family: Family::V4,
        priority: 83,
        mark: Some(0x53),
        table: TableId(83),
        protocol,
    };
    let mut range = route("10.244.0.0/24", None, ours);
    range.kind = RouteKind::Unreachable;
    for (event, concerns) in [
        (Event::RouteRemoved(range), true),
        (Event::RuleRemoved(rule(ours)), true),
        (Event::RuleRemoved(rule(boot)), false),
        (Event::Rule(rule(ours)), false),
        (Event::Overrun, true),
        (Event::Link(link(2, "eth0")), true),
        (Event::LinkRemoved(link(2, "eth0")), true),
        (Event::Link(link(7, "eth0")), true),
        (Event::LinkRemoved(link(5, "seaway.vx")), true),
        (Event::Link(link(8, "sw0123456789ab")), false),
        (Event::AddressRemoved(address("172.30.0.11/24")), true),
        (Event::Address(address("172.30.0.11/24")), true),
        (Event::AddressRemoved(address("10.244.0.1/32")), true),
        (Event::Address(address("fe80::1/64")), false),
        (Event::RouteRemoved(peer(ours)), true),
        (Event::RouteRemoved(peer(boot)), true),
        (Event::Route(peer(boot)), true),
        (Event::Route(peer(ours)), false),
        (Event::RouteRemoved(pod()), false),
        (Event::Route(pod()), false),
        (Event::RouteRemoved(probe), true),
        (
            Event::Route(route("0.0.0.0/0", Some("172.30.0.1"), boot)),
            true,
        ),
        (Event::RouteRemoved(route("::/0", None, boot)), true),
        (
            Event::Route(route("10.9.0.0/16", Some("172.30.0.1"), boot)),
            false,
        ),
    ] {
        assert_eq!(watched().concerns(&event), concerns, "{event:?}");
    }
}

#[test]
fn of_the_overlays_entries_those_that_packets_need_concern_and_of_forwarding_that_of_all() {
    let neighbour = |ip: &str, mac| Neighbour::permanent(IfIndex(5), ip.parse().unwrap(), mac);
    let entry = |mac, remote: &str| FdbEntry {
        ifindex: IfIndex(5),
        mac,
        remote: remote.parse().unwrap(),
        link: None,
    };
    let failed = Neighbour {
        permanent: false,
        mac: None,
        ..neighbour("10.244.1.1", PEER)
    };
    let switched = |family, link: Option<u32>, on| {
        let link = link.map(IfIndex);
        Event::Switched(Switched { family, link, on })
    };
    for (event, concerns) in [
        (Event::NeighbourRemoved(neighbour("10.244.1.1", PEER)), true),
        (Event::NeighbourRemoved(failed.clone()), true),
        (Event::Neighbour(failed), true),
        (Event::Neighbour(neighbour("10.244.1.1", STRANGER)), true),
        (Event::Neighbour(neighbour("10.244.1.1", PEER)), false),
        (
            Event::NeighbourRemoved(neighbour("10.244.1.7", PEER)),
            false,
        ),
        (Event::FdbRemoved(entry(PEER, "172.30.0.12")), true),
        (Event::FdbRemoved(entry(PEER, "172.30.0.99")), false),
        (Event::Fdb(entry(PEER, "172.30.0.99")), true),
        (Event::Fdb(entry(PEER, "172.30.0.12")), false),
        (Event::FdbRemoved(entry(STRANGER, "172.30.0.12")), false),
        (switched(Family::V4, None, false), true),
        (switched(Family::V4, None, true), false),
        (switched(Family::V4, Some(7), false), false),
        // These pods have no IPv6.
        (switched(Family::V6, None, false), false),
    ] {
        assert_eq!(watched().concerns(&event), concerns, "{event:?}");
    }
}

/// The operator has named eth0; there are nodes with these addresses.
fn watched_by_name() -> Watched {
    let ips = ["172.30.0.12", "172.31.0.12"].map(|ip| ip.parse().unwrap());
    Watched {
        name: Some("eth0".to_owned()),
        named: Some((IfIndex(2), ips.into())),
        ..watched()
    }
}

#[test]
fn of_the_link_that_the_operator_has_named_all_addresses_and_routes_concern() {
    let (ours, kernel) = (RouteProtocol::SEAWAY, RouteProtocol::KERNEL);
    let on = |link, network: &str| Address::new(IfIndex(link), network.parse().unwrap());
    let by = |link, to: &str, protocol| {
        let mut route = route(to, None, protocol);
        route.oif = Some(IfIndex(link));
        route
    };
    let elsewhere = Route {
        table: TableId(100),
        ..by(9, "172.31.0.0/24", kernel)
    };
    for (event, concerns) in [
        (Event::Address(on(2, "172.31.0.11/24")), true),
        (Event::AddressRemoved(on(2, "172.31.0.11/24")), true),
        (Event::Address(on(9, "172.31.0.11/24")), false),
        (Event::Route(by(2, "10.9.0.0/16", kernel)), true),
        (Event::RouteRemoved(by(2, "10.9.0.0/16", kernel)), true),
        (Event::Route(by(2, "10.9.0.0/16", ours)), false),
        // Of other links those to nodes.
        (Event::Route(by(9, "172.31.0.0/24", kernel)), true),
        (Event::RouteRemoved(by(9, "172.31.0.12/32", kernel)), true),
        (Event::Route(by(9, "10.9.0.0/16", kernel)), false),
        (Event::Route(by(9, "fe80::/64", kernel)), false),
        (Event::Route(elsewhere), false),
    ] {
        assert_eq!(watched_by_name().concerns(&event), concerns, "{event:?}");
    }
    let mut gone = watched_by_name();
    (gone.uplink, gone.named) = (None, None);
    assert!(gone.concerns(&Event::Link(link(7, "eth0"))));
    assert!(!gone.concerns(&Event::Link(link(7, "eth1"))));
}

#[test]
fn an_entry_by_another_link_than_the_operators_is_wrong() {
    let remote = "172.30.0.12".parse().unwrap();
    let mut watched = watched_by_name();
    watched.entries = [(PEER, (remote, Some(IfIndex(2))))].into();
    let by = |link: Option<u32>| FdbEntry {
        ifindex: IfIndex(5),
        mac: PEER,
        remote,
        link: link.map(IfIndex),
    };
    for (event, concerns) in [
        (Event::Fdb(by(None)), true),
        (Event::Fdb(by(Some(9))), true),
        (Event::Fdb(by(Some(2))), false),
        (Event::FdbRemoved(by(Some(2))), true),
        (Event::FdbRemoved(by(None)), false),
    ] {
        assert_eq!(watched.concerns(&event), concerns, "{event:?}");
    }
}
