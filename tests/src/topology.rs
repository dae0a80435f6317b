//! Networks of several namespaces, said in words.
//!
//! ```no_run
//! # use seaway_testbed::Topology;
//! let net = Topology::new().node("a").pod("web").pod("client").node("b").pod("web").build();
//! net.get("a/client").ask_tcp("10.244.2.2:80").unwrap();
//! ```
//! ```text
//!   outside 172.30.0.1 ─┬─ a 172.30.0.11 ─┬─ a/web    10.244.1.2
//!                       │                 └─ a/client 10.244.1.3
//!                       └─ b 172.30.0.12 ─── b/web    10.244.2.2
//! ```
//! Everybody reaches everybody by plain routes that iproute2 has set; nothing is translated,
//! and nothing leads on from `outside`. What is under test comes on top.

use std::collections::BTreeMap;

use crate::{Netns, connect};

/// A description, until [`Self::build`].
#[derive(Debug, Clone, Default)]
pub struct Topology {
    nodes: Vec<(String, Vec<String>)>,
}

impl Topology {
    /// Only `outside`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node; the n-th (from 1) gets 172.30.0.(10+n) and the pods 10.244.n.0/24.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        self.nodes.push((name.to_owned(), Vec::new()));
        self
    }

    /// Adds a pod to the node that was added last; the n-th gets the address .(1+n).
    ///
    /// # Panics
    /// Before the first node.
    #[must_use]
    #[track_caller]
    pub fn pod(mut self, name: &str) -> Self {
        let (_, pods) = self.nodes.last_mut().expect("a pod is on a node");
        pods.push(name.to_owned());
        self
    }

    /// Makes it.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Network {
        let outside = Netns::new("outside");
        outside.ip_lines(&[
            "link add br0 type bridge".to_owned(),
            "addr add 172.30.0.1/24 dev br0".to_owned(),
            "link set br0 up".to_owned(),
        ]);
        let mut members = BTreeMap::new();
        for (index, (name, pods)) in (1..).zip(&self.nodes) {
            let node = node(&outside, index, name);
            for (number, pod_name) in (2..).zip(pods) {
                let pod = pod(&node, &format!("10.244.{index}.{number}"), number);
                members.insert(format!("{name}/{pod_name}"), pod);
            }
            members.insert(name.clone(), node);
        }
        route_between(&outside, &members, &self.nodes);
        members.insert("outside".to_owned(), outside);
        Network { members }
    }
}

/// A built topology.
#[derive(Debug)]
pub struct Network {
    members: BTreeMap<String, Netns>,
}

impl Network {
    /// A member: `outside`, a node's name, or `node/pod`.
    ///
    /// # Panics
    /// When there is none of that name.
    #[must_use]
    #[track_caller]
    pub fn get(&self, name: &str) -> &Netns {
        let names = self.members.keys();
        self.members
            .get(name)
            .unwrap_or_else(|| panic!("no {name:?} among {names:?}"))
    }
}

fn node_address(index: u8) -> String {
    format!("172.30.0.{}", 10 + index)
}

/// A namespace at a port of the bridge.
fn node(outside: &Netns, index: u8, name: &str) -> Netns {
    let node = Netns::new(name);
    let peer = node.name();
    outside.ip_lines(&[
        format!("link add port{index} type veth peer name eth0 netns {peer}"),
        format!("link set port{index} master br0 up"),
    ]);
    node.ip_lines(&[
        format!("addr add {}/24 dev eth0", node_address(index)),
        "link set eth0 up".to_owned(),
        "route add default via 172.30.0.1".to_owned(),
    ]);
    node.sysctl("ipv4/ip_forward", "1");
    node
}

/// A namespace behind a node, with a link of its own and no neighbour but the node.
fn pod(node: &Netns, address: &str, number: u8) -> Netns {
    let pod = Netns::new("pod");
    // A routed link: the node answers for the gateway that all pods share.
    connect(
        node,
        &format!("pod{number}"),
        "169.254.1.1/32",
        &pod,
        "eth0",
        &format!("{address}/32"),
    );
    node.ip(&format!("route add {address}/32 dev pod{number}"));
    pod.ip("route add 169.254.1.1 dev eth0 scope link");
    pod.ip("route add default via 169.254.1.1");
    pod
}

fn route_between(
    outside: &Netns,
    members: &BTreeMap<String, Netns>,
    nodes: &[(String, Vec<String>)],
) {
    for (index, (name, _)) in (1..).zip(nodes) {
        let route = format!("route add 10.244.{index}.0/24 via {}", node_address(index));
        outside.ip(&route);
        for (other, _) in nodes.iter().filter(|(other, _)| other != name) {
            members[other].ip(&route);
        }
    }
}
