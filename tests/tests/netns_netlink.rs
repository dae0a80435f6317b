//! seaway-netlink against a real kernel; the oracle is iproute2.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use seaway_netlink::{
    Address, Event, Family, Groups, IfIndex, MacAddr, Monitor, Neighbour, NetlinkError,
    Netns as Ns, Request, Route, RouteFilter, RouteProtocol, Scope, Socket, TableId, VethEnd,
    VethPair,
};
use seaway_testbed::{Netns, connect, require_root};

fn open(netns: &Netns) -> (Ns, Socket) {
    let handle = Ns::open(netns.path()).unwrap();
    let socket = Socket::open_in(handle.as_fd()).unwrap();
    (handle, socket)
}

fn end(name: &str, index: u32, last: u8) -> VethEnd {
    let mac = MacAddr::local([0x0a, 0, 0, 0, 0, last]);
    VethEnd {
        name: name.into(),
        index: IfIndex(index),
        mac,
    }
}

fn veth(socket: &mut Socket, host: VethEnd, peer: VethEnd, netns: &Ns) -> Result<(), NetlinkError> {
    socket.link_add_veth(&VethPair {
        host,
        peer,
        peer_netns: netns.as_fd(),
        mtu: 1400,
        group: 7,
    })
}

/// More than one send takes; the first of them meets a link that has gone.
#[test]
fn many_links_go_also_when_one_is_gone_already() {
    if !require_root() {
        return;
    }
    let netns = Netns::new("many");
    for n in 0..70 {
        netns.ip(&format!("link add v{n} type veth peer name w{n}"));
    }
    let links = netns.ip_json("link");
    let names = links.as_array().unwrap().iter();
    let ours = names.filter(|link| link["ifname"].as_str().unwrap().starts_with('v'));
    let mut indexes = vec![IfIndex(70_000)];
    indexes.extend(ours.map(|link| IfIndex(link["ifindex"].as_u64().unwrap().try_into().unwrap())));
    assert_eq!(indexes.len(), 71);
    open(&netns).1.remove_links(&indexes).unwrap();
    assert_eq!(netns.ip_json("link").as_array().unwrap().len(), 1);
}

#[test]
fn veth_is_born_in_place_with_the_given_numbers_names_and_addresses() {
    if !require_root() {
        return;
    }
    let (host, pod) = (Netns::new("host"), Netns::new("pod"));
    let ((_, mut on_host), (pod_handle, mut in_pod)) = (open(&host), open(&pod));
    veth(
        &mut on_host,
        end("swtest", 5000, 1),
        end("eth0", 5001, 2),
        &pod_handle,
    )
    .unwrap();

    let link = &host.ip_json("-d link show swtest")[0];
    assert_eq!(link["ifindex"], 5000);
    assert_eq!(link["address"], "0a:00:00:00:00:01");
    assert_eq!(link["mtu"], 1400);
    let peer = &pod.ip_json("-d link show eth0")[0];
    assert_eq!(
        (&peer["ifindex"], &peer["mtu"]),
        (&5001.into(), &1400.into())
    );
    assert_eq!(peer["address"], "0a:00:00:00:00:02");

    let seen = in_pod.link_by_name("eth0").unwrap();
    assert_eq!(seen.kind.as_deref(), Some("veth"));
    assert_eq!(seen.peer, Some(IfIndex(5000)));
    assert!(!seen.up);
    assert_eq!(in_pod.link_by_index(IfIndex(5001)).unwrap(), seen);

    let alias = Request::link_set_alias(IfIndex(5000), "default/web");
    on_host
        .execute(&[Request::link_set_up(IfIndex(5000)), alias])
        .unwrap();
    in_pod.link_set_up(IfIndex(5001)).unwrap();
    let up = on_host.link_by_name("swtest").unwrap();
    assert!(up.up && up.carrier);
    assert_eq!(up.alias.as_deref(), Some("default/web"));

    assert!(on_host.remove_link("swtest").unwrap());
    assert!(!on_host.remove_link("swtest").unwrap());
    assert!(in_pod.link_by_name("eth0").unwrap_err().is_not_found());
}

#[test]
fn taken_names_and_numbers_are_told_apart() {
    if !require_root() {
        return;
    }
    let (host, pod) = (Netns::new("host"), Netns::new("pod"));
    let ((_, mut on_host), (pod_handle, _)) = (open(&host), open(&pod));
    veth(
        &mut on_host,
        end("sw1", 5000, 1),
        end("eth0", 5001, 2),
        &pod_handle,
    )
    .unwrap();
    let name = veth(
        &mut on_host,
        end("sw1", 6000, 3),
        end("eth1", 6001, 4),
        &pod_handle,
    );
    assert!(name.unwrap_err().is_exists());
    let number = veth(
        &mut on_host,
        end("sw2", 5000, 3),
        end("eth1", 6001, 4),
        &pod_handle,
    );
    let number = number.unwrap_err();
    assert!(number.is_busy() || number.is_exists(), "{number:?}");
    assert_eq!(number.to_string(), "link add veth sw2 peer eth1");
    assert_eq!(on_host.links().unwrap().len(), 2, "lo and sw1");
}

#[test]
fn addresses_routes_and_neighbours_in_one_send() {
    if !require_root() {
        return;
    }
    let (host, pod) = (Netns::new("host"), Netns::new("pod"));
    connect(&host, "up0", "10.0.0.1/24", &pod, "eth0", "10.0.0.2/24");
    let (_, mut socket) = open(&host);
    let up0 = socket.link_by_name("up0").unwrap().index;
    let mut address = Address::new(up0, "10.9.0.1/32".parse().unwrap());
    address.no_prefix_route = true;
    let mut route = Route::to("10.244.3.0/24".parse().unwrap());
    route.gateway = Some("10.0.0.2".parse().unwrap());
    route.oif = Some(up0);
    route.prefsrc = Some("10.9.0.1".parse().unwrap());
    let mut connected = Route::to("10.244.1.7/32".parse().unwrap());
    (connected.oif, connected.scope) = (Some(up0), Scope::Link);
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let neighbour = Neighbour::permanent(up0, "10.0.0.9".parse().unwrap(), mac);
    socket
        .execute(&[
            Request::address_add(&address),
            Request::route_replace(&route),
            Request::route_replace(&connected),
            Request::neighbour_replace(&neighbour),
        ])
        .unwrap();

    let shown = host.ip_json("route show proto 83");
    let wanted = serde_json::json!([
        {"dst": "10.244.1.7", "dev": "up0", "scope": "link", "flags": []},
        {"dst": "10.244.3.0/24", "gateway": "10.0.0.2", "dev": "up0", "prefsrc": "10.9.0.1",
         "flags": []},
    ]);
    assert_eq!(shown, wanted);
    let entry = &host.ip_json("neigh show 10.0.0.9")[0];
    assert_eq!(entry["lladdr"], "02:00:00:00:00:09");
    assert_eq!(entry["state"], serde_json::json!(["PERMANENT"]));

    let filter = RouteFilter::of(Family::V4, RouteProtocol::SEAWAY);
    assert_eq!(
        socket.routes(&filter).unwrap(),
        [connected.clone(), route.clone()]
    );
    assert!(
        socket
            .addresses(Family::V4, Some(up0))
            .unwrap()
            .contains(&address)
    );
    assert!(
        socket
            .neighbours(Family::V4, Some(up0))
            .unwrap()
            .contains(&neighbour)
    );
    let unused = RouteFilter {
        table: Some(TableId(4711)),
        ..filter
    };
    assert_eq!(socket.routes(&unused).unwrap(), []);
    assert!(socket.remove_route(&route).unwrap());
    assert!(!socket.remove_route(&route).unwrap());
    assert!(socket.remove_address(&address).unwrap());
    assert_eq!(socket.routes(&filter).unwrap(), [connected]);
}

#[test]
fn the_first_failure_of_a_send_is_reported_with_the_kernels_words() {
    if !require_root() {
        return;
    }
    let host = Netns::new("host");
    let (_, mut socket) = open(&host);
    let mut unreachable = Route::to("10.1.0.0/16".parse().unwrap());
    unreachable.gateway = Some("192.0.2.1".parse().unwrap());
    let missing = IfIndex(4242);
    let failed = socket
        .execute(&[
            Request::route_add(&unreachable),
            Request::link_set_up(missing),
        ])
        .unwrap_err();
    assert_eq!(failed.to_string(), "route add 10.1.0.0/16 via 192.0.2.1");
    assert!(
        failed
            .reason
            .to_string()
            .contains("Nexthop has invalid gateway"),
        "{failed:?}"
    );
    assert!(
        socket.link_set_up(missing).unwrap_err().is_not_found(),
        "the socket is still usable"
    );
}

#[test]
fn six_routes_and_addresses() {
    if !require_root() {
        return;
    }
    let (host, pod) = (Netns::new("host"), Netns::new("pod"));
    connect(&host, "up0", "fd00::1/64", &pod, "eth0", "fd00::2/64");
    let (_, mut socket) = open(&host);
    let up0 = socket.link_by_name("up0").unwrap().index;
    let mut route = Route::to("fd00:3::/64".parse().unwrap());
    (route.gateway, route.oif) = (Some("fd00::2".parse().unwrap()), Some(up0));
    socket.route_replace(&route).unwrap();
    assert_eq!(
        host.ip_json("-6 route show proto 83")[0]["gateway"],
        "fd00::2"
    );
    let ours = socket
        .routes(&RouteFilter::of(Family::V6, RouteProtocol::SEAWAY))
        .unwrap();
    assert_eq!(ours.len(), 1);
    assert_eq!(
        (ours[0].destination, ours[0].gateway),
        (route.destination, route.gateway)
    );
}

/// As in fabrics of routers, whose links may have IPv6 addresses only.
#[test]
fn of_a_route_with_several_next_hops_the_first_is_told() {
    if !require_root() {
        return;
    }
    let host = Netns::new("host");
    for (place, up) in ["up0", "up1"].into_iter().enumerate() {
        host.ip(&format!("link add {up} type veth peer name far{place}"));
        host.ip(&format!("link set far{place} up"));
        host.ip(&format!("link set {up} up"));
        host.ip(&format!("addr add 10.{place}.0.1/24 dev {up}"));
        host.ip(&format!("addr add fd0{place}::1/64 dev {up} nodad"));
    }
    for made in [
        "route add default nexthop via 10.0.0.2 dev up0 nexthop via 10.1.0.2 dev up1",
        "-6 route add default nexthop via fd01::2 dev up1 nexthop via fd00::2 dev up0",
        "route add 10.8.0.0/16 nexthop via inet6 fe80::7 dev up1 nexthop via inet6 fe80::8 dev up0",
        "route add 10.9.0.0/16 via inet6 fe80::9 dev up0",
    ] {
        host.ip(made);
    }
    let (_, mut socket) = open(&host);
    let [up0, up1] = ["up0", "up1"].map(|name| socket.link_by_name(name).unwrap().index);
    for (family, to, gateway, link) in [
        (Family::V4, "0.0.0.0/0", "10.0.0.2", up0),
        (Family::V6, "::/0", "fd01::2", up1),
        (Family::V4, "10.8.0.0/16", "fe80::7", up1),
        (Family::V4, "10.9.0.0/16", "fe80::9", up0),
    ] {
        let routes = socket.routes(&RouteFilter::of(family, RouteProtocol::BOOT));
        let mut routes = routes.unwrap().into_iter();
        let route = routes.find(|route| route.destination.to_string() == to);
        let route = route.unwrap();
        assert_eq!(route.gateway, Some(gateway.parse().unwrap()), "{to}");
        assert_eq!(route.oif, Some(link), "{to}");
    }
}

#[test]
fn a_monitor_sees_what_others_do() {
    if !require_root() {
        return;
    }
    let host = Netns::new("host");
    let groups = Groups {
        links: true,
        addresses: true,
        routes: true,
        rules: true,
        ..Groups::default()
    };
    let mut monitor = host.enter(|| Monitor::open(groups).unwrap());
    assert_eq!(monitor.wait(Duration::from_millis(1)).unwrap(), None);
    host.ip("link add m0 type veth peer name m1");
    host.ip("link set m0 up");
    host.ip("addr add 10.7.0.1/24 dev m0");
    host.ip("route add 10.8.0.0/24 dev m0 proto 83");
    host.ip("rule add fwmark 0x53 lookup 83 protocol 83");
    host.ip("-6 rule add fwmark 0x53 lookup 83 protocol 83");
    host.ip("-6 rule del fwmark 0x53 lookup 83");
    host.ip("link del m0");
    let (mut up, mut address, mut route, mut gone) = (false, false, false, false);
    let mut rules = Vec::new();
    while let Some(event) = monitor.wait(Duration::from_millis(500)).unwrap() {
        match event {
            Event::Link(link) => up |= link.name == "m0" && link.up,
            Event::Address(a) => address |= a.network.to_string() == "10.7.0.1/24",
            Event::Route(r) => route |= r.protocol == RouteProtocol::SEAWAY,
            Event::LinkRemoved(link) => gone |= link.name == "m0",
            Event::Rule(rule) => rules.push((rule.family, rule.protocol, true)),
            Event::RuleRemoved(rule) => rules.push((rule.family, rule.protocol, false)),
            _ => {}
        }
    }
    assert!(
        up && address && route && gone,
        "{up} {address} {route} {gone}"
    );
    let ours = RouteProtocol::SEAWAY;
    let expect = [(Family::V4, true), (Family::V6, true), (Family::V6, false)];
    assert_eq!(rules, expect.map(|(family, there)| (family, ours, there)));
}

#[test]
fn a_monitor_hears_of_one_links_neighbours_and_is_not_woken_by_others() {
    if !require_root() {
        return;
    }
    let host = Netns::new("host");
    host.sysctl("ipv4/ip_forward", "1");
    for name in ["busy", "watched"] {
        host.ip(&format!(
            "link add {name} type vxlan id {} dstport {}",
            name.len(),
            name.len() + 5000
        ));
        host.ip(&format!("link set {name} up"));
    }
    let groups = Groups {
        neighbours: true,
        forwarding: true,
        ..Groups::default()
    };
    let mut monitor = host.enter(|| Monitor::open(groups).unwrap());
    let link = host.ip_json("link show dev watched")[0]["ifindex"]
        .as_u64()
        .unwrap();
    let link = IfIndex(u32::try_from(link).unwrap());
    monitor.only_neighbours_of(Some(link)).unwrap();
    let change = |dev: &str| {
        host.ip(&format!(
            "neigh replace 10.9.0.1 lladdr 02:00:00:00:00:01 dev {dev} nud permanent"
        ));
        host.must_run(&[
            "bridge",
            "fdb",
            "replace",
            "02:00:00:00:00:01",
            "dst",
            "10.1.0.1",
            "dev",
            dev,
        ]);
        host.must_run(&["bridge", "fdb", "del", "02:00:00:00:00:01", "dev", dev]);
        host.ip(&format!("neigh flush dev {dev} nud permanent"));
    };
    for _ in 0..20 {
        change("busy");
    }
    assert_eq!(monitor.wait(Duration::from_millis(100)).unwrap(), None);
    change("watched");
    host.sysctl("ipv4/ip_forward", "0");
    let (mut entry, mut removed, mut unsure, mut off) = (false, false, false, false);
    while let Some(event) = monitor.wait(Duration::from_millis(500)).unwrap() {
        match event {
            Event::Fdb(e) => entry |= e.ifindex == link && e.remote.to_string() == "10.1.0.1",
            Event::FdbRemoved(e) => removed |= e.ifindex == link,
            Event::Neighbour(n) => unsure |= n.ifindex == link && !n.permanent,
            Event::NeighbourRemoved(n) => unsure |= n.ifindex == link,
            Event::Switched(s) => off |= s.link.is_none() && s.family == Family::V4 && !s.on,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        entry && removed && unsure && off,
        "{entry} {removed} {unsure} {off}"
    );
    monitor.only_neighbours_of(None).unwrap();
    change("busy");
    assert!(monitor.wait(Duration::from_millis(100)).unwrap().is_some());
}

#[test]
fn a_monitor_that_was_too_slow_says_so() {
    if !require_root() {
        return;
    }
    let host = Netns::new("host");
    let groups = Groups {
        routes: true,
        ..Groups::default()
    };
    let mut monitor = host.enter(|| Monitor::open(groups).unwrap());
    let (_, mut socket) = open(&host);
    // The default receive buffer holds a few hundred notifications, or acknowledgements.
    let routes: Vec<_> = (0..8 * 256)
        .map(|number| {
            let (third, fourth) = (number / 256, number % 256);
            let mut route = Route::to(format!("10.1.{third}.{fourth}/32").parse().unwrap());
            route.kind = seaway_netlink::RouteKind::Blackhole;
            Request::route_add(&route)
        })
        .collect();
    socket.execute(&routes).unwrap();
    let mut overrun = false;
    while let Some(event) = monitor.wait(Duration::from_millis(200)).unwrap() {
        overrun |= event == Event::Overrun;
    }
    assert!(overrun);
    // A dump of many datagrams is read whole.
    let filter = RouteFilter::of(Family::V4, RouteProtocol::SEAWAY);
    assert_eq!(socket.routes(&filter).unwrap().len(), 8 * 256);
}

#[test]
fn namespaces_are_told_apart_by_identity() {
    if !require_root() {
        return;
    }
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let first = Ns::open(a.path()).unwrap();
    assert_eq!(first.id(), Ns::open(a.path()).unwrap().id());
    assert_ne!(first.id(), Ns::open(b.path()).unwrap().id());
    assert_ne!(first.id(), Ns::current().unwrap().id());
    assert_eq!(a.enter(|| Ns::current().unwrap().id()), first.id());
    assert!(Ns::open(Path::new("/run/netns/absent")).is_err());
}
