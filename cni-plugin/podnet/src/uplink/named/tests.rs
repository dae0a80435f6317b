use super::*;

const UPLINK: IfIndex = IfIndex(3);

/// As `ip route` spells it, with the link's number behind `dev`.
fn route(text: &str) -> Route {
    let mut words = text.split(' ');
    let to = match words.next().unwrap() {
        "default" => "0.0.0.0/0",
        to => to,
    };
    let mut route = Route::to(to.parse().unwrap());
    route.protocol = RouteProtocol::BOOT;
    while let (Some(what), Some(value)) = (words.next(), words.next()) {
        match what {
            "via" => route.gateway = Some(value.parse().unwrap()),
            "dev" => route.oif = Some(IfIndex(value.parse().unwrap())),
            "metric" => route.metric = Some(value.parse().unwrap()),
            "proto" => route.protocol = RouteProtocol(value.parse().unwrap()),
            _ => panic!("{what}"),
        }
    }
    // As iproute2 does.
    if route.gateway.is_none() && route.destination.is_ipv4() {
        route.scope = Scope::Link;
    }
    route
}

/// The link with the number 3.
pub(crate) fn named(addresses: &[&str], routes: &[&str]) -> Named {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|network| Address::new(UPLINK, network.parse().unwrap()))
        .collect();
    let routes: Vec<_> = routes.iter().map(|text| route(text)).collect();
    Named::new(UPLINK, &addresses, &routes)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// For each address: whether the link leads there, and whether it is a neighbour.
#[track_caller]
fn check(named: &Named, expect: &[(&str, bool, bool)]) {
    for (to, leads, near) in expect {
        let got = (named.towards(ip(to)), named.beside(ip(to)));
        let link = |is: &bool| is.then_some(UPLINK);
        assert_eq!(got, (link(leads), link(near)), "{to}");
    }
}

#[test]
fn a_default_route_leads_where_no_other_link_has_a_route_of_its_own_to() {
    let named = named(
        &["172.30.0.11/24", "fd01::11/64"],
        &[
            "default via 172.30.0.1 dev 3",
            "::/0 via fd01::1 dev 3",
            "172.30.0.0/24 dev 3",
            "fd01::/64 dev 3",
            "10.9.0.0/16 dev 7",
            "fd09::/48 via fd07::1 dev 7",
        ],
    );
    let expect = [
        ("172.30.0.12", true, true),
        ("172.30.5.12", true, false),
        ("10.9.0.12", false, false),
        ("fd01::12", true, true),
        ("fd05::12", true, false),
        ("fd09::12", false, false),
    ];
    check(&named, &expect);
}

#[test]
fn narrower_networks_of_others_count_and_equal_ones_do_not_whatever_the_metric() {
    let named = named(
        &["172.30.0.11/16"],
        &[
            "172.30.0.0/16 dev 3 metric 900",
            "172.30.0.0/16 dev 2",
            "172.30.7.0/24 dev 7",
            "172.30.8.12/32 via 172.30.0.1 dev 3",
        ],
    );
    let expect = [
        ("172.30.0.12", true, true),
        ("172.30.7.12", false, false),
        // The kernel refuses a gateway that is behind another one.
        ("172.30.8.12", true, false),
        ("172.31.0.12", false, false),
    ];
    check(&named, &expect);
}

#[test]
fn neighbours_are_where_routes_say_so_and_not_where_addresses_do() {
    // Down, or the address has no route (noprefixroute).
    let without = named(&["172.30.0.11/24"], &["default via 192.0.2.1 dev 2"]);
    check(&without, &[("172.30.0.12", true, false)]);
    let with = named(&["172.30.0.11/32"], &["172.30.0.0/24 dev 3"]);
    check(&with, &[("172.30.0.12", true, true)]);
    let mut global = route("172.30.0.0/24 dev 3");
    global.scope = Scope::Global;
    let global = Named::new(UPLINK, &[], &[global]);
    check(&global, &[("172.30.0.12", true, false)]);
}

#[test]
fn our_own_routes_and_such_that_lead_nowhere_are_no_reason() {
    let mut nowhere = route("172.30.0.0/24");
    nowhere.kind = RouteKind::Unreachable;
    let routes = [
        route("default via 172.31.0.1 dev 3"),
        route("172.30.0.12/32 dev 2 proto 83"),
        nowhere,
    ];
    let named = Named::new(UPLINK, &[], &routes);
    check(&named, &[("172.30.0.12", true, false)]);
    let own = Named::new(UPLINK, &[], &[route("172.30.0.0/24 dev 3 proto 83")]);
    check(&own, &[("172.30.0.12", false, false)]);
}

#[test]
fn what_is_about_no_node_is_dropped_and_the_answers_stay() {
    let ips = ["172.30.0.12", "10.9.0.12"].map(ip).into();
    let routes = ["172.30.0.0/24 dev 3", "10.9.0.0/16 dev 7"];
    let about = named(&["172.30.0.11/24"], &routes).about(&ips);
    let more = ["203.0.113.0/24 dev 3", "198.51.100.0/24 dev 7"];
    let all = named(
        &["172.30.0.11/24", "192.0.2.1/24"],
        &[&routes[..], &more].concat(),
    );
    assert_ne!(all, about);
    assert_eq!(all.about(&ips), about);
    let expect = [("172.30.0.12", true, true), ("10.9.0.12", false, false)];
    check(&about, &expect);
}

#[test]
fn only_that_there_is_no_such_link_means_none() {
    let refused = |errno| {
        let reason = seaway_netlink::Reason::Refused {
            errno,
            message: None,
        };
        Err(NetlinkError {
            op: "link show",
            object: "eth1".to_owned(),
            reason,
        })
    };
    assert!(there(refused(nix::libc::ENODEV)).unwrap().is_none());
    assert!(there(refused(nix::libc::ENOBUFS)).is_err());
}
