//! Which of a node's addresses counts if the operator names a link, and where it leads.

use super::*;
use crate::uplink::named;

/// What node `a` wants while the operator's link has these addresses and routes.
fn by_uplink(mode: PodRoutes, nodes: &[Node], named: &Named) -> Desired {
    let nodes = nodes.iter().map(|n| (n.name.clone(), n.clone())).collect();
    let paths = Paths::default();
    desired("a", &nodes, &settings(mode), &paths, Some(named)).unwrap()
}

/// Where plain routes lead by then.
#[track_caller]
fn check_by_uplink(nodes: &[Node], named: &Named, expect: &str) {
    let want = by_uplink(PodRoutes::Direct, nodes, named);
    let routes = want.routes().map(|(_, to)| match to.path {
        Path::Direct { via } => format!("{} via {via}", to.cidr),
        Path::Overlay => panic!("{to:?}"),
    });
    assert_eq!(routes.collect::<Vec<_>>().join("\n"), expect);
}

#[test]
fn of_several_internal_ips_that_behind_the_named_uplink_counts() {
    let named = named(&["172.31.0.11/24", "fd02::11/64"], &[]);
    let nodes = [
        node(
            "a",
            "172.30.0.11 fd01::11 172.31.0.11 fd02::11",
            "10.244.0.0/24 fd00::/64",
        ),
        node(
            "b",
            "cat 172.30.0.12 172.31.0.12 fd01::12 172.31.0.22 fd02::12",
            "10.244.1.0/24 fd00:0:0:1::/64",
        ),
        // Nothing of it is there.
        node("c", "172.30.0.13 172.29.0.13", "10.244.2.0/24"),
    ];
    check_by_uplink(
        &nodes,
        &named,
        "10.244.1.0/24 via 172.31.0.12\n\
         fd00:0:0:1::/64 via fd02::12\n\
         10.244.2.0/24 via 172.30.0.13",
    );
    let got = by_uplink(PodRoutes::Vxlan, &nodes, &named);
    let local = got
        .overlay
        .as_ref()
        .map(|overlay| overlay.local.to_string());
    assert_eq!(local.as_deref(), Some("172.31.0.11"));
    let links = ["172.31.0.12", "172.30.0.13"].map(|ip| got.link_towards(ip.parse().unwrap()));
    assert_eq!(links, [Some(IfIndex(3)), None]);
}

/// Other racks are behind a gateway of the named link, or behind another link's.
#[test]
fn an_internal_ip_behind_the_named_uplinks_default_route_counts_before_those_elsewhere() {
    let nodes = [
        node("a", "172.30.0.11 172.31.0.11", "10.244.0.0/24"),
        // Of the default route and of a narrower one the latter counts, in whatever order.
        node("b", "192.0.2.12 172.31.0.12", "10.244.1.0/24"),
        node("c", "172.30.1.13 172.31.1.13", "10.244.2.0/24"),
        node("d", "172.30.1.14", "10.244.3.0/24"),
    ];
    let routes = [
        "172.31.0.0/24 dev 3",
        "default via 172.31.0.1 dev 3",
        "172.30.0.0/16 via 172.30.0.1 dev 2",
    ];
    let named = named(&["172.31.0.11/24"], &routes);
    check_by_uplink(
        &nodes,
        &named,
        "10.244.1.0/24 via 172.31.0.12\n\
         10.244.2.0/24 via 172.31.1.13\n\
         10.244.3.0/24 via 172.30.1.14",
    );
    let want = by_uplink(PodRoutes::Vxlan, &nodes, &named);
    let links = ["172.31.1.13", "172.30.1.14"].map(|ip| want.link_towards(ip.parse().unwrap()));
    assert_eq!(links, [Some(IfIndex(3)), None]);
}

#[test]
fn a_route_of_the_uplink_to_a_node_is_news_and_one_to_nobody_is_none() {
    let nodes = [own(), node("b", "172.30.0.12", "10.244.1.0/24")];
    let want = |routes: &[&str]| by_uplink(PodRoutes::Vxlan, &nodes, &named(&[], routes));
    let to_b = "172.30.0.0/24 dev 3";
    assert_ne!(want(&[to_b]), want(&[]));
    assert_eq!(want(&[to_b, "203.0.113.0/24 dev 3"]), want(&[to_b]));
}
