use std::error::Error as _;

use super::*;

fn link(index: u32, name: &str, mtu: u32) -> Link {
    Link {
        index: IfIndex(index),
        name: name.to_owned(),
        alias: None,
        mac: None,
        mtu,
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

fn address(index: u32, network: &str) -> Address {
    Address::new(IfIndex(index), network.parse().unwrap())
}

fn default_route(family: &str, index: u32, metric: Option<u32>) -> Route {
    let mut route = Route::to(family.parse().unwrap());
    route.oif = Some(IfIndex(index));
    route.metric = metric;
    route
}

fn seen() -> Seen {
    Seen {
        links: vec![
            link(1, "lo", 65_536),
            link(2, "eth0", 1500),
            link(3, "eth1", 9000),
            link(4, "wg0", 1420),
        ],
        addresses: vec![
            address(1, "127.0.0.1/8"),
            address(1, "192.0.2.1/32"),
            address(2, "172.30.0.11/24"),
            address(3, "10.0.0.11/24"),
            address(3, "fd00:30::11/64"),
        ],
        default_routes: vec![
            default_route("0.0.0.0/0", 3, Some(200)),
            default_route("0.0.0.0/0", 2, Some(100)),
            default_route("::/0", 4, None),
        ],
    }
}

#[track_caller]
fn check(name: Option<&str>, ips: &[&str], expect: (&str, u32, FoundBy)) {
    check_in(&seen(), name, ips, expect);
}

#[track_caller]
fn check_in(seen: &Seen, name: Option<&str>, ips: &[&str], expect: (&str, u32, FoundBy)) {
    let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    let uplink = choose(name, &ips, seen).unwrap();
    assert_eq!((uplink.link.name.as_str(), uplink.mtu, uplink.by), expect);
}

fn by_address(ip: &str) -> FoundBy {
    FoundBy::Address(ip.parse().unwrap())
}

#[test]
fn the_operators_word_goes_first() {
    check(Some("wg0"), &["172.30.0.11"], ("wg0", 1420, FoundBy::Name));
    let text = choose(Some("eth9"), &[], &seen()).unwrap_err().to_string();
    assert!(text.contains("--uplink eth9"), "{text}");
}

#[test]
fn then_the_link_with_the_nodes_address() {
    let found = by_address("172.30.0.11");
    check(None, &["172.30.0.11"], ("eth0", 1500, found));
    let found = by_address("fd00:30::11");
    check(None, &["fd00:30::11"], ("eth1", 9000, found));
}

#[test]
fn of_two_links_the_narrower_one_decides_the_mtu_and_the_first_carries_the_overlay() {
    let found = by_address("fd00:30::11");
    check(None, &["fd00:30::11", "172.30.0.11"], ("eth1", 1500, found));
}

#[test]
fn then_the_default_route_of_the_addresss_family_with_the_lowest_metric() {
    check(
        None,
        &["198.51.100.7"],
        ("eth0", 1500, FoundBy::DefaultRoute),
    );
    check(None, &["2001:db8::7"], ("wg0", 1420, FoundBy::DefaultRoute));
    // Without any address, all default routes count.
    check(None, &[], ("eth0", 1420, FoundBy::DefaultRoute));
    // An IPv6 route without a metric has 1024.
    let mut other = seen();
    other
        .default_routes
        .push(default_route("::/0", 3, Some(512)));
    let found = FoundBy::DefaultRoute;
    check_in(&other, None, &["2001:db8::7"], ("eth1", 9000, found));
}

#[test]
fn an_address_on_the_loopback_is_on_no_link() {
    check(None, &["192.0.2.1"], ("eth0", 1500, FoundBy::DefaultRoute));
}

#[test]
fn routes_that_lead_nowhere_do_not_count() {
    let mut seen = seen();
    let mut refused = default_route("0.0.0.0/0", 4, None);
    refused.kind = RouteKind::Unreachable;
    let mut nowhere = default_route("0.0.0.0/0", 4, None);
    nowhere.oif = None;
    seen.default_routes.extend([refused, nowhere]);
    seen.default_routes
        .push(default_route("0.0.0.0/0", 99, Some(1)));
    check_in(
        &seen,
        None,
        &["198.51.100.7"],
        ("eth0", 1500, FoundBy::DefaultRoute),
    );
}

#[test]
fn none_found_names_what_was_looked_for_and_what_to_do() {
    let nothing = Seen::default();
    let error = choose(None, &["192.0.2.7".parse().unwrap()], &nothing).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("192.0.2.7") && text.contains("--uplink"),
        "{text}"
    );
    assert!(error.source().is_none());
    let text = choose(None, &[], &nothing).unwrap_err().to_string();
    assert!(text.contains("InternalIP"), "{text}");
}
