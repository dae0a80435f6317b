use super::*;

#[test]
fn message_and_back() {
    let mut route = Route::to("10.244.3.0/24".parse().unwrap());
    route.gateway = Some("172.30.0.12".parse().unwrap());
    route.oif = Some(IfIndex(4));
    route.prefsrc = Some("10.244.1.1".parse().unwrap());
    route.table = TableId(1000);
    route.onlink = true;
    route.metric = Some(7);
    assert_eq!(Route::parse(&route.message()), Some(route.clone()));
    assert_eq!(
        route.to_string(),
        "10.244.3.0/24 via 172.30.0.12 dev ifindex 4 table 1000"
    );
    // As between routers whose links have no IPv4 addresses.
    route.gateway = Some("fe80::12".parse().unwrap());
    assert_eq!(Route::parse(&route.message()), Some(route));
    let default = Route::to("::/0".parse().unwrap());
    assert_eq!(Route::parse(&default.message()), Some(default));
}

fn hop(link: u32, flags: RouteNextHopFlags, router: RouteAttribute) -> RouteNextHop {
    let mut hop = RouteNextHop::default();
    hop.interface_index = link;
    hop.flags = flags;
    hop.attributes.push(router);
    hop
}

/// A message about a route to everything of the family of `any` by these next hops.
fn by(any: &str, hops: Vec<RouteNextHop>) -> RouteMessage {
    let mut message = Route::to(any.parse().unwrap()).message();
    message.attributes.push(RouteAttribute::MultiPath(hops));
    message
}

#[test]
fn of_several_next_hops_the_first_counts_dead_or_not() {
    let (dead, alive) = (RouteNextHopFlags::Dead, RouteNextHopFlags::empty());
    let v4 = |ip: Ipv4Addr| RouteAttribute::Gateway(ip.into());
    let v6 = |ip: Ipv6Addr| RouteAttribute::Gateway(ip.into());
    let via = |ip: Ipv6Addr| RouteAttribute::Via(RouteVia::Inet6(ip));
    let (a, b) = ("172.30.0.1", "172.31.0.1");
    let (c, d) = ("fe80::1", "fe80::2");
    let two =
        |first: RouteAttribute, flags, second| vec![hop(7, flags, first), hop(3, alive, second)];
    for (any, hops, expect) in [
        (
            "0.0.0.0/0",
            two(v4(a.parse().unwrap()), alive, v4(b.parse().unwrap())),
            a,
        ),
        (
            "0.0.0.0/0",
            two(v4(a.parse().unwrap()), dead, v4(b.parse().unwrap())),
            a,
        ),
        (
            "0.0.0.0/0",
            two(via(c.parse().unwrap()), alive, via(d.parse().unwrap())),
            c,
        ),
        (
            "::/0",
            two(v6(c.parse().unwrap()), alive, v6(d.parse().unwrap())),
            c,
        ),
    ] {
        let route = Route::parse(&by(any, hops)).unwrap();
        assert_eq!(route.destination.to_string(), any);
        assert_eq!(route.oif, Some(IfIndex(7)), "{any} {expect}");
        assert_eq!(route.gateway, Some(expect.parse().unwrap()), "{any}");
        assert!(!route.onlink);
    }
}

#[test]
fn a_next_hop_says_itself_that_it_is_on_the_link_and_may_be_no_router() {
    let onlink = hop(
        7,
        RouteNextHopFlags::Onlink,
        RouteAttribute::Gateway(Ipv4Addr::new(192, 0, 2, 1).into()),
    );
    let route = Route::parse(&by("0.0.0.0/0", vec![onlink])).unwrap();
    assert!(route.onlink);
    // A tunnel: the link alone.
    let tunnel = hop(7, RouteNextHopFlags::empty(), RouteAttribute::Priority(1));
    let route = Route::parse(&by("0.0.0.0/0", vec![tunnel])).unwrap();
    assert_eq!((route.oif, route.gateway), (Some(IfIndex(7)), None));
    let none = Route::parse(&by("0.0.0.0/0", Vec::new())).unwrap();
    assert_eq!((none.oif, none.gateway), (None, None));
}
