//! The pod network between two nodes: real routes, real masquerade, real packets.
//!
//! ```text
//!  pod a 10.244.0.5 ─ node a 172.30.0.11 ─┐
//!                                         ├─ fabric (bridge) ─ world 172.30.0.99
//!  pod b 10.244.1.5 ─ node b 172.30.0.12 ─┘
//! ```
//!
//! Node namespaces know each other's addresses only; what leads to pods is made
//! by the crate under test. The world knows no pod address at all.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;

use seaway_podnet::{Changes, Desired, Node, PodNetwork, PodNetworkError, desired};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, connect, require_root};

/// A node, and one pod on it, attached as the CNI plugin does it.
struct TestNode {
    name: &'static str,
    netns: Netns,
    pod: Netns,
    pod_ip: &'static str,
}

struct Topology {
    a: TestNode,
    b: TestNode,
    world: Netns,
    // Lives as long as the others are to be connected.
    _fabric: Netns,
}

impl Topology {
    fn new() -> Self {
        let fabric = Netns::new("fabric");
        fabric.ip("link add br0 type bridge");
        fabric.ip("link set br0 up");
        let a = TestNode::new(&fabric, "a", "172.30.0.11/24", "10.244.0.5");
        let b = TestNode::new(&fabric, "b", "172.30.0.12/24", "10.244.1.5");
        let world = Netns::new("world");
        plug(&fabric, &world, "172.30.0.99/24");
        Self {
            a,
            b,
            world,
            _fabric: fabric,
        }
    }
}

impl TestNode {
    fn new(fabric: &Netns, name: &'static str, address: &str, pod_ip: &'static str) -> Self {
        let netns = Netns::new(name);
        plug(fabric, &netns, address);
        let pod = Netns::new("pod");
        connect(
            &netns,
            "swtest",
            "169.254.0.1/32",
            &pod,
            "eth0",
            &format!("{pod_ip}/32"),
        );
        netns.ip("addr del 169.254.0.1/32 dev swtest");
        netns.ip(&format!("route add {pod_ip}/32 dev swtest proto 83"));
        let links = netns.ip_json("link show dev swtest");
        let mac = links[0]["address"].as_str().unwrap();
        pod.ip(&format!(
            "neigh add 169.254.1.1 dev eth0 lladdr {mac} nud permanent"
        ));
        pod.ip("route add 169.254.1.1 dev eth0 scope link");
        pod.ip("route add default via 169.254.1.1 dev eth0");
        Self {
            name,
            netns,
            pod,
            pod_ip,
        }
    }

    fn apply(&self, nodes: &[Node]) -> Changes {
        let want = self.desired(nodes);
        self.netns
            .enter(|| PodNetwork::open().unwrap().apply(&want).unwrap())
    }

    /// As [`apply`](Self::apply), when no part may fail.
    #[track_caller]
    fn apply_all(&self, nodes: &[Node]) -> (usize, usize) {
        let changes = self.apply(nodes);
        assert!(changes.failed.is_empty(), "{:?}", changes.failed);
        (changes.replaced, changes.removed)
    }

    fn desired(&self, nodes: &[Node]) -> Desired {
        let nodes: BTreeMap<_, _> = nodes.iter().map(|n| (n.name.clone(), n.clone())).collect();
        desired(self.name, &nodes, &["10.244.0.0/16".parse().unwrap()]).unwrap()
    }

    /// `destination gateway` of every route in the main table but the kernel's own.
    fn routes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for route in self.netns.ip_json("route show").as_array().unwrap() {
            if route["protocol"] == "kernel" {
                continue;
            }
            let via = route["gateway"].as_str().or(route["dev"].as_str()).unwrap();
            lines.push(format!(
                "{} {via} {}",
                route["dst"].as_str().unwrap(),
                route["protocol"]
            ));
        }
        lines.sort();
        lines
    }
}

/// A new port of the bridge for `netns`.
fn plug(fabric: &Netns, netns: &Netns, address: &str) {
    let port = format!("p{}", address.split(['.', '/']).nth(3).unwrap());
    fabric.ip(&format!(
        "link add {port} type veth peer name eth0 netns {}",
        netns.name()
    ));
    fabric.ip(&format!("link set {port} master br0 up"));
    netns.ip(&format!("addr add {address} dev eth0"));
    netns.ip("link set eth0 up");
}

fn node(name: &str, ip: &str, cidr: &str) -> Node {
    Node {
        name: name.to_owned(),
        internal_ips: vec![ip.to_owned()],
        pod_cidrs: vec![cidr.to_owned()],
    }
}

fn both() -> Vec<Node> {
    vec![
        node("a", "172.30.0.11", "10.244.0.0/24"),
        node("b", "172.30.0.12", "10.244.1.0/24"),
    ]
}

#[test]
fn pods_on_two_nodes_reach_each_other_with_their_own_addresses() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    let _server = net.b.pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
    let before = net.a.pod.ask_tcp("10.244.1.5:80");
    assert!(
        before.is_err(),
        "the fixture itself leads to pods: {before:?}"
    );

    assert_eq!(net.a.apply_all(&both()), (1, 0));
    assert_eq!(net.b.apply_all(&both()), (1, 0));
    let answer = net.a.pod.ask(Protocol::Tcp, "10.244.1.5:80").unwrap();
    assert_eq!(answer.name, "b");
    assert_eq!(answer.client.ip().to_string(), net.a.pod_ip);
    // From the node itself to the remote pod: its InternalIP is an address that b's pods can answer.
    let answer = net.a.netns.ask(Protocol::Tcp, "10.244.1.5:80").unwrap();
    assert_eq!(answer.client.ip().to_string(), "172.30.0.11");
}

#[test]
fn what_leaves_the_cluster_has_the_nodes_address() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    let _tcp = net.world.serve(Protocol::Tcp, "172.30.0.99:80", "world");
    let _udp = net.world.serve(Protocol::Udp, "172.30.0.99:53", "world");
    net.a.apply_all(&both());
    for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 53)] {
        let answer = net
            .a
            .pod
            .ask(protocol, &format!("172.30.0.99:{port}"))
            .unwrap();
        assert_eq!(
            (
                answer.name.as_str(),
                answer.client.ip().to_string().as_str()
            ),
            ("world", "172.30.0.11")
        );
    }
}

#[test]
fn routes_follow_the_nodes_and_nothing_is_done_twice() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    let pod_route = "10.244.0.5 swtest \"83\"";
    assert_eq!(net.a.apply_all(&both()), (1, 0));
    assert_eq!(
        net.a.routes(),
        [pod_route, "10.244.1.0/24 172.30.0.12 \"83\""]
    );
    let again = net.a.apply(&both());
    assert_eq!((again.replaced, again.removed, again.node), (0, 0, false));

    // b gets another address, and c joins.
    let mut nodes = both();
    nodes[1] = node("b", "172.30.0.22", "10.244.1.0/24");
    nodes.push(node("c", "172.30.0.13", "10.244.2.0/24"));
    assert_eq!(net.a.apply_all(&nodes), (2, 0));
    assert_eq!(
        net.a.routes(),
        [
            pod_route,
            "10.244.1.0/24 172.30.0.22 \"83\"",
            "10.244.2.0/24 172.30.0.13 \"83\""
        ]
    );
    // Both leave: this node's pods must not lose their own routes by it.
    nodes.truncate(1);
    assert_eq!(net.a.apply_all(&nodes), (0, 2));
    assert_eq!(net.a.routes(), [pod_route]);
}

#[test]
fn drift_is_repaired() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    net.a.apply_all(&both());
    net.a.netns.ip("route del 10.244.1.0/24");
    net.a.netns.sysctl("ipv4/ip_forward", "0");
    // Somebody's mistake under our mark: it is ours, so it goes.
    net.a
        .netns
        .ip("route add 10.244.9.0/24 via 172.30.0.99 proto 83");
    net.a
        .netns
        .must_run(&["nft", "flush", "table", "ip", "seaway"]);
    let changes = net.a.apply(&both());
    assert_eq!(
        (changes.replaced, changes.removed, changes.node),
        (1, 1, true)
    );
    assert_eq!(
        net.a.routes(),
        [
            "10.244.0.5 swtest \"83\"",
            "10.244.1.0/24 172.30.0.12 \"83\""
        ]
    );
    assert_eq!(
        net.a
            .netns
            .must_run(&["cat", "/proc/sys/net/ipv4/ip_forward"])
            .trim(),
        "1"
    );
    assert!(
        net.a
            .netns
            .must_run(&["nft", "list", "table", "ip", "seaway"])
            .contains("masquerade")
    );
}

#[test]
fn foreign_routes_stay_and_hurt_no_other_peer() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    let foreign = [
        "10.244.7.0/24 172.30.0.99 \"static\"",
        "10.99.0.0/16 172.30.0.99 \"static\"",
    ];
    net.a
        .netns
        .ip("route add 10.244.7.0/24 via 172.30.0.99 proto static");
    net.a
        .netns
        .ip("route add 10.99.0.0/16 via 172.30.0.99 proto static");
    let mut nodes = both();
    // One that is in the way, one whose address no link leads to.
    nodes.push(node("aa", "172.30.0.17", "10.244.7.0/24"));
    nodes.push(node("ab", "192.0.2.1", "10.244.8.0/24"));
    let changes = net.a.apply(&nodes);
    assert_eq!(changes.replaced, 1);
    let failed: Vec<String> = changes.failed.iter().map(ToString::to_string).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        matches!(changes.failed[0], PodNetworkError::ForeignRoute { .. }),
        "{failed:?}"
    );
    assert!(
        matches!(changes.failed[1], PodNetworkError::Routes { .. }),
        "{failed:?}"
    );
    let routes = net.a.routes();
    assert!(
        routes.contains(&"10.244.1.0/24 172.30.0.12 \"83\"".to_owned()),
        "{routes:?}"
    );
    for route in foreign {
        assert!(
            routes.contains(&route.to_owned()),
            "{route} is gone: {routes:?}"
        );
    }
}

#[test]
fn removal_leaves_nothing_of_ours_and_all_of_theirs() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    net.a
        .netns
        .ip("route add 10.99.0.0/16 via 172.30.0.99 proto static");
    net.a
        .netns
        .must_run(&["nft", "add", "table", "ip", "foreign"]);
    let (routes, tables) = (
        net.a.routes(),
        net.a.netns.must_run(&["nft", "list", "ruleset"]),
    );
    net.a.apply_all(&both());
    assert_ne!(net.a.routes(), routes);
    assert_ne!(net.a.netns.must_run(&["nft", "list", "ruleset"]), tables);
    for _ in 0..2 {
        let changes = net
            .a
            .netns
            .enter(|| PodNetwork::open().unwrap().remove_all().unwrap());
        assert!(changes.failed.is_empty(), "{:?}", changes.failed);
        assert_eq!(net.a.routes(), routes);
        assert_eq!(net.a.netns.must_run(&["nft", "list", "ruleset"]), tables);
    }
}

#[test]
fn the_mtu_is_the_uplinks() {
    if !require_root() {
        return;
    }
    let net = Topology::new();
    net.a.netns.ip("link set eth0 mtu 1420");
    let mtu = |want: &Desired| {
        net.a
            .netns
            .enter(|| PodNetwork::open().unwrap().uplink_mtu(want))
    };
    let want = net.a.desired(&both());
    assert_eq!(mtu(&want).unwrap(), 1420);
    // Behind a translation the InternalIP is on no link; the default route tells.
    let elsewhere = Desired {
        node_ip: Some("192.0.2.7".parse().unwrap()),
        ..want
    };
    let text = mtu(&elsewhere).unwrap_err().to_string();
    assert!(text.contains("192.0.2.7"), "{text}");
    net.a.netns.ip("route add default via 172.30.0.99");
    assert_eq!(mtu(&elsewhere).unwrap(), 1420);
}
