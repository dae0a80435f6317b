//! Three nodes, a pod on each, and the world.
//!
//! ```text
//!  pod a 10.244.0.5 ─ node a 172.30.0.11 ─┐
//!  pod b 10.244.1.5 ─ node b 172.30.0.12 ─┼─ fabric (bridge) ─ world 172.30.0.99
//!  pod c 10.244.2.5 ─ node c 172.30.0.13 ─┘
//! ```
//! The same in IPv6: pods fd00:0:0:N::5, nodes fd01::1N. Node namespaces know each other's
//! addresses only; what leads to pods is made by the crate under test. The world knows no
//! pod address at all.

use std::collections::BTreeMap;

use seaway_podnet::{
    Changes, Desired, Family, Node, Paths, PodNetwork, PodNetworkError, PodRoutes, Settings,
    desired,
};
use seaway_testbed::Netns;

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Of nodes or pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    V4,
    V6,
    Dual,
}

impl Stack {
    pub(crate) fn families(self) -> &'static [Family] {
        match self {
            Self::V4 => &[Family::V4],
            Self::V6 => &[Family::V6],
            Self::Dual => &[Family::V4, Family::V6],
        }
    }
}

/// A node, and one pod on it, attached as the CNI plugin does it.
pub(crate) struct TestNode {
    pub(crate) name: &'static str,
    pub(crate) netns: Netns,
    pub(crate) pod: Netns,
}

pub(crate) struct Net {
    pub(crate) nodes: Vec<TestNode>,
    pub(crate) world: Netns,
    pub(crate) fabric: Netns,
    /// What the API says.
    pub(crate) api: Vec<Node>,
    pub(crate) settings: Settings,
    pub(crate) paths: Paths,
}

/// A node's n-th pod address; the first one is the reserved one.
pub(crate) fn pod_ip(node: usize, family: Family, n: u8) -> String {
    match family {
        Family::V4 => format!("10.244.{node}.{n}"),
        Family::V6 => spelled(&format!("fd00:0:0:{node}::{n}")),
    }
}

/// As the kernel and everybody else prints it.
fn spelled(ip: &str) -> String {
    ip.parse::<std::net::IpAddr>().unwrap().to_string()
}

pub(crate) fn pod_cidr(node: usize, family: Family) -> String {
    match family {
        Family::V4 => format!("10.244.{node}.0/24"),
        Family::V6 => format!("fd00:0:0:{node}::/64"),
    }
}

pub(crate) fn node_ip(node: usize, family: Family) -> String {
    match family {
        Family::V4 => format!("172.30.0.{}", 11 + node),
        Family::V6 => format!("fd01::{}", 11 + node),
    }
}

/// `ip:port`, with the brackets that IPv6 needs.
pub(crate) fn at(ip: &str, port: u16) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

impl Net {
    /// Nodes of `underlay` with pods of `pods`.
    pub(crate) fn new(mode: PodRoutes, underlay: Stack, pods: Stack) -> Self {
        let fabric = Netns::new("fabric");
        fabric.ip("link add br0 type bridge");
        fabric.ip("link set br0 up");
        let nodes: Vec<_> = (0..NAMES.len())
            .map(|place| TestNode::new(&fabric, place, underlay, pods))
            .collect();
        let world = settled("world");
        plug(&fabric, &world, "world", &["172.30.0.99/24", "fd01::99/64"]);
        let api = (0..NAMES.len()).map(|place| api_node(place, underlay, pods));
        let cluster = ["10.244.0.0/16", "fd00::/48"];
        Self {
            nodes,
            world,
            fabric,
            api: api.collect(),
            settings: Settings {
                mode,
                cluster_cidrs: cluster.map(|cidr| cidr.parse().unwrap()).to_vec(),
                ..Settings::default()
            },
            paths: Paths::default(),
        }
    }

    /// As clouds do: packets of addresses that it has not given out are dropped.
    pub(crate) fn drop_pod_addresses(&self) {
        let nft = |words: &str| {
            let words: Vec<_> = std::iter::once("nft").chain(words.split(' ')).collect();
            self.fabric.must_run(&words);
        };
        nft("add table bridge cloud");
        nft("add chain bridge cloud across { type filter hook forward priority 0; }");
        nft("add rule bridge cloud across ip saddr 10.244.0.0/16 drop");
        nft("add rule bridge cloud across ip daddr 10.244.0.0/16 drop");
        nft("add rule bridge cloud across ip6 saddr fd00::/48 drop");
        nft("add rule bridge cloud across ip6 daddr fd00::/48 drop");
    }

    pub(crate) fn desired(&self, node: usize) -> Desired {
        let nodes: BTreeMap<_, _> = self
            .api
            .iter()
            .map(|n| (n.name.clone(), n.clone()))
            .collect();
        desired(NAMES[node], &nodes, &self.settings, &self.paths, None).unwrap()
    }

    pub(crate) fn try_apply(&self, node: usize) -> Result<Changes, PodNetworkError> {
        let want = self.desired(node);
        let apply = || PodNetwork::open()?.apply(&want);
        self.nodes[node].netns.enter(apply)
    }

    /// When no part may fail.
    #[track_caller]
    pub(crate) fn apply(&self, node: usize) -> Changes {
        let changes = self.try_apply(node).unwrap();
        assert!(changes.failed.is_empty(), "{:?}", changes.failed);
        changes
    }

    #[track_caller]
    pub(crate) fn apply_all(&self) {
        for node in 0..self.nodes.len() {
            self.apply(node);
        }
    }

    pub(crate) fn pod_mtu(&self, node: usize) -> u32 {
        let want = self.desired(node);
        let mtu = || PodNetwork::open().unwrap().pod_mtu(&want).unwrap();
        self.nodes[node].netns.enter(mtu)
    }

    /// Sets the MTU of all pods' interfaces, as the CNI plugin does from its conf.
    pub(crate) fn set_pod_mtu(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            let mtu = self.pod_mtu(place);
            node.netns.ip(&format!("link set swtest mtu {mtu}"));
            node.pod.ip(&format!("link set eth0 mtu {mtu}"));
        }
    }
}

impl TestNode {
    fn new(fabric: &Netns, place: usize, underlay: Stack, pods: Stack) -> Self {
        let name = NAMES[place];
        let netns = settled(name);
        let addresses = underlay.families().iter().map(|family| match family {
            Family::V4 => format!("{}/24", node_ip(place, *family)),
            Family::V6 => format!("{}/64", node_ip(place, *family)),
        });
        let addresses: Vec<_> = addresses.collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        plug(fabric, &netns, name, &addresses);
        let pod = settled("pod");
        let node = Self { name, netns, pod };
        node.attach(place, pods, 5);
        node
    }

    /// Connects `pod` with the n-th address of the node's ranges.
    pub(crate) fn attach(&self, place: usize, pods: Stack, n: u8) {
        let Self { netns, pod, .. } = self;
        let peer = pod.name();
        netns.ip_lines(&[
            format!("link add swtest type veth peer name eth0 netns {peer}"),
            "link set swtest up".to_owned(),
        ]);
        pod.ip("link set eth0 up");
        let mac = |netns: &Netns, link: &str| {
            let links = netns.ip_json(&format!("link show dev {link}"));
            links[0]["address"].as_str().unwrap().to_owned()
        };
        let (host_mac, pod_mac) = (mac(netns, "swtest"), mac(pod, "eth0"));
        for family in pods.families() {
            let ip = pod_ip(place, *family, n);
            let (flag, gateway, length) = match family {
                Family::V4 => ("-4", "169.254.1.1", 32),
                Family::V6 => ("-6", "fe80::1", 128),
            };
            let nodad = if *family == Family::V6 { "nodad" } else { "" };
            pod.ip(&format!("addr add {ip}/{length} dev eth0 {nodad}"));
            pod.ip(&format!(
                "neigh add {gateway} dev eth0 lladdr {host_mac} nud permanent"
            ));
            pod.ip(&format!(
                "{flag} route add default via {gateway} dev eth0 onlink"
            ));
            netns.ip(&format!(
                "neigh replace {ip} dev swtest lladdr {pod_mac} nud permanent"
            ));
            netns.ip(&format!(
                "{flag} route add {ip}/{length} dev swtest proto 83"
            ));
        }
    }

    /// `destination next-hop protocol` of the main table's routes, but for the kernel's own.
    pub(crate) fn routes(&self, flag: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for route in self
            .netns
            .ip_json(&format!("{flag} route show"))
            .as_array()
            .unwrap()
        {
            if route["protocol"] == "kernel" || route["type"] == "unreachable" {
                continue;
            }
            let via = route["gateway"].as_str().or(route["dev"].as_str()).unwrap();
            let (to, by) = (route["dst"].as_str().unwrap(), &route["protocol"]);
            lines.push(format!("{to} {via} {by}"));
        }
        lines.sort();
        lines
    }
}

/// A namespace whose links may ask for neighbours at once. The kernel asks nobody before it is
/// done with looking for duplicates of the link-local address, for a second after link-up.
pub(crate) fn settled(hint: &str) -> Netns {
    let netns = Netns::new(hint);
    for conf in ["all", "default"] {
        netns.sysctl(&format!("ipv6/conf/{conf}/accept_dad"), "0");
    }
    netns
}

/// A new port of the bridge for `netns`.
pub(crate) fn plug(fabric: &Netns, netns: &Netns, port: &str, addresses: &[&str]) {
    let peer = netns.name();
    fabric.ip_lines(&[
        format!("link add p-{port} type veth peer name eth0 netns {peer}"),
        format!("link set p-{port} master br0 up"),
    ]);
    let mut lines = vec!["link set eth0 up".to_owned()];
    lines.extend(addresses.iter().map(|address| {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        format!("addr add {address} dev eth0 {nodad}")
    }));
    netns.ip_lines(&lines);
}

pub(crate) fn api_node(place: usize, underlay: Stack, pods: Stack) -> Node {
    let of = |stack: Stack, text: fn(usize, Family) -> String| {
        let families = stack.families().iter();
        families.map(|family| text(place, *family)).collect()
    };
    Node {
        name: NAMES[place].to_owned(),
        created: None,
        internal_ips: of(underlay, node_ip),
        pod_cidrs: of(pods, pod_cidr),
    }
}
