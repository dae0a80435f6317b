//! Whatever Nodes say, what is desired holds together.

use proptest::prelude::*;
use proptest::sample::select;

use super::node::overlap;
use super::*;
use crate::{Paths, PodRoutes, Settings};

const ADDRESSES: [&str; 12] = [
    "172.30.0.11",
    "172.30.0.12",
    "172.30.0.13",
    "172.30.0.14",
    "fd01::12",
    "fd01::13",
    "fe80::1",
    "127.0.0.1",
    "10.244.0.9",
    "0.0.0.0",
    "",
    "cat",
];
const CIDRS: [&str; 14] = [
    "10.244.1.0/24",
    "10.244.1.0/25",
    "10.244.0.0/16",
    "10.244.2.0/24",
    "10.244.3.0/24",
    "10.244.3.77/24",
    "172.30.0.0/24",
    "fd00:0:0:1::/64",
    "fd00:0:0:2::/64",
    "fd00::/48",
    "fd01::/64",
    "10.244.4.0/33",
    "10.244.4.0",
    "::/0",
];
const NAMES: [&str; 5] = ["b", "c", "d", "e", "f"];

fn texts(pool: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let some = prop::collection::vec(select(pool), 0..4);
    some.prop_map(|texts| texts.into_iter().map(str::to_owned).collect())
}

fn any_node(name: &'static str) -> impl Strategy<Value = Node> {
    let created = select(&[None, Some(1), Some(2), Some(3)][..]);
    let parts = (created, texts(&ADDRESSES), texts(&CIDRS));
    parts.prop_map(move |(created, internal_ips, pod_cidrs)| Node {
        name: name.to_owned(),
        created,
        internal_ips,
        pod_cidrs,
    })
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    NAMES.map(any_node).prop_map(Vec::from).prop_shuffle()
}

fn own() -> Node {
    Node {
        name: "a".to_owned(),
        created: Some(2),
        internal_ips: vec!["172.30.0.11".to_owned(), "fd01::11".to_owned()],
        pod_cidrs: vec!["10.244.0.0/24".to_owned(), "fd00::/64".to_owned()],
    }
}

fn any_settings() -> impl Strategy<Value = (Settings, Paths)> {
    let mode = select(&[PodRoutes::Auto, PodRoutes::Vxlan, PodRoutes::Direct]);
    let proven = (select(&NAMES[..]), select(&[Family::V4, Family::V6][..]));
    let paths = prop::collection::vec(proven, 0..5);
    (mode, paths).prop_map(|(mode, paths)| {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        let paths = paths.into_iter();
        let paths = paths.map(|(name, family)| (name.to_owned(), family));
        (settings, paths.collect())
    })
}

fn want(nodes: &[Node], (settings, paths): &(Settings, Paths)) -> Desired {
    let nodes = nodes.iter().cloned().chain([own()]);
    let nodes = nodes.map(|node| (node.name.clone(), node)).collect();
    desired("a", &nodes, settings, paths, None).unwrap()
}

proptest! {
    #[test]
    fn ranges_are_led_to_once_and_cut_nobody_off(
        nodes in any_nodes(), settings in any_settings()
    ) {
        let want = want(&nodes, &settings);
        let mut ranges = want.pod_cidrs.clone();
        for (peer, to) in want.routes() {
            prop_assert!(!ranges.iter().any(|other| overlap(*other, to.cidr)), "{want}");
            ranges.push(to.cidr);
            prop_assert!(to.cidr.contains(to.reserved));
            prop_assert!(want.node_ips.iter().all(|ip| !to.cidr.contains(*ip)));
            for other in want.peers.values() {
                prop_assert!(other.vtep.is_none_or(|ip| !to.cidr.contains(ip)), "{want}");
            }
            let leads = match to.path {
                Path::Direct { via } => via.is_ipv4() == to.cidr.is_ipv4(),
                Path::Overlay => peer.vtep.is_some() && want.overlay.is_some(),
            };
            prop_assert!(leads, "{want}");
        }
    }

    #[test]
    fn every_peer_is_led_to_or_skipped_with_a_reason(
        nodes in any_nodes(), settings in any_settings()
    ) {
        let want = want(&nodes, &settings);
        for node in &nodes {
            let skipped = want.skipped.iter().any(|skip| skip.node == node.name);
            prop_assert!(want.peers.contains_key(&node.name) || skipped, "{}", node.name);
        }
    }

    #[test]
    fn the_order_of_nodes_does_not_matter(
        nodes in any_nodes(), settings in any_settings()
    ) {
        let mut turned = nodes.clone();
        turned.reverse();
        prop_assert_eq!(want(&nodes, &settings), want(&turned, &settings));
    }

    /// The youngest, so that no earlier claim of its stands, and with no address in the
    /// range of another, which costs that range: nobody can tell which of the two is wrong.
    #[test]
    fn a_bad_node_costs_only_itself(
        bad in any_node("0"), settings in any_settings(), place in 0..3usize
    ) {
        let good = |number: usize| Node {
            name: NAMES[number].to_owned(),
            created: Some(0),
            internal_ips: vec![format!("172.30.0.2{number}"), format!("fd01::2{number}")],
            pod_cidrs: vec![format!("10.244.{}.0/24", number + 1), format!("fd00:0:0:{}::/64", number + 1)],
        };
        let mut nodes: Vec<_> = (0..3).map(good).collect();
        let without = want(&nodes, &settings);
        nodes.insert(place, bad);
        let mut with = want(&nodes, &settings);
        with.peers.remove("0");
        prop_assert_eq!(with.peers, without.peers);
    }
}
