//! A fabric of routers: the node's addresses are on its loopback, and several links lead out.

use seaway_podnet::{Desired, FoundBy, PodNetwork};
use seaway_testbed::{Netns, require_root};

use crate::net::settled;

/// A node with two links to routers, over which nothing leads anywhere yet.
fn node() -> Netns {
    let netns = settled("leaf");
    for (place, up) in ["up0", "up1"].into_iter().enumerate() {
        netns.ip_lines(&[
            format!("link add {up} type veth peer name far{place}"),
            format!("link set {up} mtu 140{place}"),
            format!("link set far{place} up"),
            format!("link set {up} up"),
            format!("addr add 10.{place}.0.1/24 dev {up}"),
            format!("addr add fd0{place}::1/64 dev {up} nodad"),
        ]);
    }
    netns.ip_lines(&[
        "addr add 192.0.2.11/32 dev lo".to_owned(),
        "addr add 2001:db8::11/128 dev lo nodad".to_owned(),
    ]);
    netns
}

#[test]
fn the_uplink_is_the_first_next_hop_of_a_default_route_with_several() {
    if !require_root() {
        return;
    }
    let netns = node();
    for (address, default, expect) in [
        (
            "192.0.2.11",
            "route add default nexthop via 10.0.0.2 dev up0 nexthop via 10.1.0.2 dev up1",
            ("up0", 1400),
        ),
        (
            "2001:db8::11",
            "-6 route add default nexthop via fd01::2 dev up1 nexthop via fd00::2 dev up0",
            ("up1", 1401),
        ),
    ] {
        let want = Desired {
            node_ips: vec![address.parse().unwrap()],
            ..Desired::default()
        };
        let find = || netns.enter(|| PodNetwork::open().unwrap().uplink(&want));
        let told = find().unwrap_err().to_string();
        assert!(told.contains(address), "nothing leads out yet: {told}");
        netns.ip(default);
        let uplink = find().unwrap();
        assert_eq!((uplink.link.name.as_str(), uplink.mtu), expect, "{address}");
        assert_eq!(uplink.by, FoundBy::DefaultRoute);
        let mtu = netns.enter(|| PodNetwork::open().unwrap().pod_mtu(&want));
        assert_eq!(
            mtu.unwrap(),
            expect.1,
            "without an overlay pods get the uplink's"
        );
    }
}
