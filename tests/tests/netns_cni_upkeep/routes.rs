//! Routes to the node's own pods, which somebody has flushed.

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, addresses};
use crate::verbs::repair;

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

fn state(node: &Node) -> [serde_json::Value; 4] {
    let mut neighbours = node.netns.ip_json("neigh show nud permanent");
    let all = neighbours.as_array_mut().unwrap();
    all.sort_by_key(ToString::to_string);
    let mut v6 = node.netns.ip_json("-6 route show proto 83");
    v6.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    let gateways = node.netns.ip_json("-6 addr show to fe80::1");
    let gateways = gateways.as_array().unwrap().iter();
    [
        node.netns.ip_json("route show proto 83"),
        v6,
        neighbours,
        json!(
            gateways
                .map(|link| link["ifname"].clone())
                .collect::<Vec<_>>()
        ),
    ]
}

#[test]
fn flushed_routes_and_links_that_went_down_are_repaired() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let first = node.add("a", &a);
    node.conf["runtimeConfig"] = json!({"mac": "02:11:22:33:44:55"});
    let second = node.add("b", &b);
    let ifname = second["interfaces"][0]["name"].as_str().unwrap();
    let _servers = [&a, &b].map(|pod| pod.serve(Tcp, "[::]:80", "pod"));
    let reach = || {
        for (from, to) in [(&a, &second), (&b, &first)] {
            let [v4, v6] = addresses(to).try_into().unwrap();
            for to in [format!("{v4}:80"), format!("[{v6}]:80")] {
                assert_eq!(from.ask_tcp(&to).unwrap(), "pod", "{to}");
            }
        }
    };
    let before = state(&node);
    assert_eq!(repair(&node)["routes"], 0);
    for words in [
        "route flush proto 83",
        "-6 route flush proto 83",
        "neigh flush dev IF nud permanent",
        "link set IF down",
    ] {
        node.netns.ip(&words.replace("IF", ifname));
        assert_ne!(state(&node), before, "{words}");
        let repaired = repair(&node);
        assert!(repaired["routes"].as_u64() > Some(0), "{words}: {repaired}");
        assert_eq!(state(&node), before, "{words}");
        reach();
        assert_eq!(repair(&node)["routes"], 0, "{words}");
    }
    node.netns.ip(&format!("link set {ifname} down"));
    node.netns.ip(&format!("link set {ifname} up"));
    assert_eq!(repair(&node)["links"], 0);
    assert_eq!(state(&node), before);
    reach();
    for id in ["a", "b"] {
        node.del(id, "");
    }
    node.assert_empty();
}

#[test]
fn a_route_that_leads_elsewhere_is_told_and_stays() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pod = Netns::new("pod");
    let address = addresses(&node.add("c1", &pod)).remove(0);
    node.netns.ip("route flush proto 83");
    node.netns.ip(&format!("route add {address}/32 dev lo"));
    let repaired = repair(&node);
    assert_eq!(repaired["routes"], 0, "{repaired}");
    assert!(
        repaired["skipped"].to_string().contains(&address),
        "{repaired}"
    );
    assert_eq!(node.netns.ip_json("route show proto 83"), json!([]));
}
