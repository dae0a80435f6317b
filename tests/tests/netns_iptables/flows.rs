//! The table of flows, as real packets.
//!
//! ```text
//!  client  10.0.0.2   ─ pod0 ┐              ┌ eth0 ─ outside 203.0.113.2
//!  h1…     10.180.0.1 ─ pod… ┤     node     ├ eth1 ─ blocked 203.0.113.130
//!  far pod 10.180.1.9 ─ far0 ┤              └ eth2 ─ beyond: what nobody translates ends here
//!  t1…     10.180.1.1 ─ far1 ┘
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use seaway_proxy_core::desired::{DesiredState, Family, Protocol};
use seaway_proxy_core::flows::{Client, Flow, NODE_ADDRESSES, VIP, endpoint, flows, in_family};
use seaway_proxy_core::interpret::{Outcome, Seen};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour, Iptables};
use seaway_testbed::peer::{self, Answer, Server};
use seaway_testbed::{Netns, connect, require_root};

use crate::node::block_on;

/// How long "no answer" is waited for; answers take a millisecond mostly.
const SILENCE: Duration = Duration::from_millis(500);
/// How long anything else may take: a refusal that comes in while `connect` is
/// still at work counts for the next SYN only, which is sent a second later.
const PATIENCE: Duration = Duration::from_millis(2500);
/// The router of everything that has no route of its own.
const BEYOND: &str = "192.168.3.2";
const LOCAL: [&str; 4] = ["h1", "h2", "h3", "h4"];
const FAR: [&str; 5] = ["t1", "t2", "t3", "t4", "t5"];

pub(crate) struct World {
    backend: Iptables,
    /// Before the namespaces, so that they end first.
    _servers: Vec<Server>,
    pub(crate) node: Netns,
    pub(crate) client: Netns,
    pods: Vec<Netns>,
    far: Netns,
    /// Another node's pods.
    _other: Netns,
    pub(crate) outside: Netns,
    blocked: Netns,
    beyond: Netns,
}

impl World {
    pub(crate) fn new(config: Config, family: Family) -> Self {
        let node = netns("node", family);
        match family {
            Family::V4 => node.sysctl("ipv4/ip_forward", "1"),
            Family::V6 => node.sysctl("ipv6/conf/all/forwarding", "1"),
        }
        // One client is refused more often here than the kernel says so otherwise.
        match family {
            Family::V4 => node.sysctl("ipv4/icmp_ratelimit", "0"),
            Family::V6 => node.sysctl("ipv6/icmp/ratelimit", "0"),
        }
        let address = |text: &str| in_family(text.parse().unwrap(), family);
        let mut servers = Vec::new();
        let client = pod(&node, "pod0", address("10.0.0.2"));
        let pods: Vec<Netns> = LOCAL
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let addr = endpoint(name, family);
                let pod = pod(&node, &format!("pod{}", i + 1), addr.ip());
                serve(&pod, name, addr, &mut servers);
                pod
            })
            .collect();
        let far = pod(&node, "far0", address(Client::FarPod.address().0));
        let other = netns("other", family);
        let (here, there) = (address("192.168.2.1"), address("192.168.2.2"));
        let net = if family == Family::V4 { 24 } else { 112 };
        let ends = (format!("{here}/{net}"), format!("{there}/{net}"));
        connect(&node, "far1", &ends.0, &other, "eth0", &ends.1);
        for name in FAR {
            let addr = endpoint(name, family);
            other.ip(&format!(
                "addr add {} dev lo{}",
                addr.ip(),
                nodad(addr.ip())
            ));
            serve(&other, name, addr, &mut servers);
            node.ip(&format!("route add {} via {there}", addr.ip()));
        }
        other.ip(&format!("route add default via {here}"));
        let own = NODE_ADDRESSES.map(address);
        let outside = stranger(&node, "eth0", own[0], address(Client::Outside.address().0));
        let blocked = stranger(&node, "eth1", own[1], address(Client::Blocked.address().0));
        let beyond = netns("beyond", family);
        let (here, there) = (address("192.168.3.1"), address(BEYOND));
        let ends = (format!("{here}/{net}"), format!("{there}/{net}"));
        connect(&node, "eth2", &ends.0, &beyond, "eth0", &ends.1);
        beyond.ip(&format!("route add default via {here}"));
        let src = address(Client::Node.address().0);
        node.ip(&format!("route add default via {there} src {src}"));
        // An endpoint in the host's network.
        serve(&node, "n1", endpoint("n1", family), &mut servers);
        let backend = node.enter(|| block_on(Iptables::new(config))).unwrap();
        Self {
            backend,
            _servers: servers,
            node,
            client,
            pods,
            far,
            _other: other,
            outside,
            blocked,
            beyond,
        }
    }

    pub(crate) fn sync(&mut self, desired: &DesiredState) {
        let backend = &mut self.backend;
        let round = || block_on(sync_once(backend, None, desired));
        self.node.enter(round).unwrap();
        let again = self
            .node
            .enter(|| block_on(sync_once(&mut self.backend, None, desired)));
        assert!(!again.unwrap().changed, "what was read is what was written");
    }

    fn namespace(&self, client: Client) -> &Netns {
        match client {
            Client::Pod => &self.client,
            Client::Endpoint => &self.pods[0],
            Client::Node | Client::NodeAsVip | Client::Loopback => &self.node,
            Client::FarPod => &self.far,
            Client::Outside => &self.outside,
            Client::Blocked => &self.blocked,
        }
    }

    /// All addresses by which an endpoint may know the node.
    fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let links = self.node.ip_json("addr show");
        let infos = links
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|link| link["addr_info"].as_array());
        let addrs = infos.flatten().filter_map(|info| info["local"].as_str());
        addrs.map(|addr| addr.parse().unwrap()).collect()
    }

    pub(crate) fn ask(&self, flow: &Flow) -> io::Result<Answer> {
        let protocol = match flow.protocol {
            Protocol::Udp => peer::Protocol::Udp,
            _ => peer::Protocol::Tcp,
        };
        let to = flow.dst();
        let patience = match flow.expected() {
            Outcome::Unanswered => SILENCE,
            _ => PATIENCE,
        };
        let netns = self.namespace(flow.from);
        netns.enter(|| peer::ask(protocol, to, patience))
    }

    /// Where an answer is due. A datagram has one more try: a link that has just come
    /// up, or a neighbour that is being looked for, may cost the first.
    fn ask_for_answer(&self, flow: &Flow) -> io::Result<Answer> {
        match self.ask(flow) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.ask(flow),
            other => other,
        }
    }

    /// What is wrong about a row, if anything.
    pub(crate) fn check(&self, flow: &Flow) -> Result<(), String> {
        if flow.from != Client::NodeAsVip {
            return self.ends_as_expected(flow);
        }
        let vip = in_family(VIP.parse().unwrap(), flow.family);
        self.node
            .ip(&format!("addr add {vip} dev lo{}", nodad(vip)));
        // To itself it sends from there anyway.
        let dst = flow.dst().ip();
        if dst != vip {
            let beyond = in_family(BEYOND.parse().unwrap(), flow.family);
            self.node
                .ip(&format!("route add {dst} via {beyond} src {vip}"));
        }
        let checked = self.ends_as_expected(flow);
        if dst != vip {
            self.node.ip(&format!("route del {dst}"));
        }
        self.node.ip(&format!("addr del {vip} dev lo"));
        checked
    }

    fn ends_as_expected(&self, flow: &Flow) -> Result<(), String> {
        let (kind, text) = match flow.expected() {
            Outcome::Answered(answers) => {
                let expected: Vec<_> = answers.into_iter().collect();
                return self.answered(flow, &expected);
            }
            Outcome::Untouched => return self.untouched(flow),
            Outcome::Refused => (io::ErrorKind::ConnectionRefused, "refused"),
            Outcome::Unanswered => (io::ErrorKind::TimedOut, "no answer"),
        };
        match self.ask(flow) {
            Err(error) if error.kind() == kind => Ok(()),
            other => Err(format!("{text} expected, got {other:?}")),
        }
    }

    /// Asks until an endpoint would be left out by chance once in 10^8 only.
    fn answered(&self, flow: &Flow, expected: &[(SocketAddr, Seen)]) -> Result<(), String> {
        let own = self.own_addresses();
        let client = flow.src();
        let mut missing: BTreeSet<SocketAddr> = expected.iter().map(|(addr, _)| *addr).collect();
        let questions = if expected.len() == 1 { 3 } else { 60 };
        for _ in 0..questions {
            let answer = self
                .ask_for_answer(flow)
                .map_err(|e| format!("nobody answers: {e:?}"))?;
            let addr = endpoint(&answer.name, flow.family);
            let Some((_, seen)) = expected.iter().find(|(a, _)| *a == addr) else {
                return Err(format!("{} answers", answer.name));
            };
            let as_expected = match seen {
                Seen::Client => answer.client.ip() == client,
                Seen::Node => own.contains(&answer.client.ip()),
            };
            if !as_expected {
                return Err(format!("{} sees {}", answer.name, answer.client));
            }
            missing.remove(&addr);
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("{missing:?} never answered"))
    }

    /// Whoever has the address gets the packet.
    fn untouched(&self, flow: &Flow) -> Result<(), String> {
        let addr = flow.dst();
        let on_node = self.own_addresses().contains(&addr.ip());
        let holder = if on_node { &self.node } else { &self.beyond };
        if !on_node {
            holder.ip(&format!(
                "addr add {} dev lo{}",
                addr.ip(),
                nodad(addr.ip())
            ));
        }
        let protocol = match flow.protocol {
            Protocol::Udp => peer::Protocol::Udp,
            _ => peer::Protocol::Tcp,
        };
        let server = holder.serve(protocol, &addr.to_string(), "holder");
        let answer = self.ask_for_answer(flow);
        drop(server);
        if !on_node {
            holder.ip(&format!("addr del {} dev lo", addr.ip()));
        }
        match answer {
            Ok(answer) if answer.name == "holder" => Ok(()),
            other => Err(format!("the address' holder should answer, got {other:?}")),
        }
    }
}

fn serve(netns: &Netns, name: &str, addr: SocketAddr, servers: &mut Vec<Server>) {
    for protocol in [peer::Protocol::Tcp, peer::Protocol::Udp] {
        servers.push(netns.serve(protocol, &addr.to_string(), name));
    }
}

/// Without the second that an IPv6 address takes to be sure of itself.
fn netns(hint: &str, family: Family) -> Netns {
    let netns = Netns::new(hint);
    if family == Family::V6 {
        for links in ["all", "default"] {
            netns.sysctl(&format!("ipv6/conf/{links}/accept_dad"), "0");
        }
    }
    netns
}

/// For an IPv6 address to be there at once.
fn nodad(addr: IpAddr) -> &'static str {
    if addr.is_ipv6() { " nodad" } else { "" }
}

/// The address with the prefix of a single host.
fn host(addr: IpAddr) -> String {
    match addr {
        IpAddr::V4(addr) => format!("{addr}/32"),
        IpAddr::V6(addr) => format!("{addr}/128"),
    }
}

/// A pod with a routed address, as our pod network makes it.
fn pod(node: &Netns, ifname: &str, addr: IpAddr) -> Netns {
    let family = Family::of(addr);
    let pod = netns(ifname, family);
    let gateway = in_family([10, 180, 0, 250].into(), family);
    connect(node, ifname, &host(gateway), &pod, "eth0", &host(addr));
    node.ip(&format!("route add {addr} dev {ifname}"));
    pod.ip(&format!("route add {gateway} dev eth0"));
    pod.ip(&format!("route add default via {gateway}"));
    pod
}

/// Somebody outside, whose only address is the one that rows name.
fn stranger(node: &Netns, ifname: &str, node_address: IpAddr, addr: IpAddr) -> Netns {
    let stranger = netns(ifname, Family::of(addr));
    connect(
        node,
        ifname,
        &host(node_address),
        &stranger,
        "eth0",
        &host(addr),
    );
    node.ip(&format!("route add {addr} dev {ifname}"));
    stranger.ip(&format!("route add {node_address} dev eth0"));
    stranger.ip(&format!("route add default via {node_address}"));
    stranger
}

fn run(family: Family, flavour: Flavour) {
    if !require_root() {
        return;
    }
    let run_dir = tempfile::tempdir().unwrap();
    let config = Config {
        flavour: Some(flavour),
        run_dir: run_dir.path().to_owned(),
        ..Config::default()
    };
    let mut world = World::new(config, family);
    let (mut wrong, mut count) = (String::new(), 0);
    let mut current = None;
    for flow in flows() {
        let flow = Flow { family, ..flow };
        let desired = flow.given.compiled(family).desired;
        if current.as_ref() != Some(&desired) {
            world.sync(&desired);
            current = Some(desired);
        }
        if flow.protocol == Protocol::Sctp {
            eprintln!(
                "case {:?} is not sent: no SCTP sockets in this kernel",
                flow.cases
            );
            continue;
        }
        count += 1;
        if let Err(error) = world.check(&flow) {
            let (cases, from, to, given) = (flow.cases, flow.from, flow.dst(), flow.given);
            let (spec, endpoints) = (given.spec, given.endpoints);
            let row = format!("{cases:?} {spec} [{endpoints}] {from:?} → {to}");
            writeln!(wrong, "{row}, {}: {error}", flow.expect).unwrap();
        }
    }
    eprintln!("{count} flows");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_flow_ends_as_its_row_says_with_nft() {
    run(Family::V4, Flavour::Nft);
}

#[test]
fn every_flow_ends_as_its_row_says_with_legacy() {
    run(Family::V4, Flavour::Legacy);
}

#[test]
fn every_flow_ends_as_its_row_says_in_ipv6_with_nft() {
    run(Family::V6, Flavour::Nft);
}

#[test]
fn every_flow_ends_as_its_row_says_in_ipv6_with_legacy() {
    run(Family::V6, Flavour::Legacy);
}
