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

use seaway_proxy_core::desired::{DesiredState, Protocol};
use seaway_proxy_core::flows::{Client, Flow, NODE_ADDRESSES, VIP, endpoint, flows};
use seaway_proxy_core::interpret::{Outcome, Seen};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Iptables};
use seaway_testbed::peer::{self, Answer, Server};
use seaway_testbed::{Netns, connect};

use crate::node::{block_on, each_flavour};

/// How long "no answer" is waited for; answers take a millisecond.
const SILENCE: Duration = Duration::from_millis(500);
const LOCAL: [&str; 4] = ["h1", "h2", "h3", "h4"];
const FAR: [&str; 5] = ["t1", "t2", "t3", "t4", "t5"];

struct World {
    backend: Iptables,
    /// Before the namespaces, so that they end first.
    _servers: Vec<Server>,
    node: Netns,
    client: Netns,
    pods: Vec<Netns>,
    far: Netns,
    /// Another node's pods.
    _other: Netns,
    outside: Netns,
    blocked: Netns,
    beyond: Netns,
}

impl World {
    fn new(config: Config) -> Self {
        let node = Netns::new("node");
        node.sysctl("ipv4/ip_forward", "1");
        // One client is refused more often here than the kernel says so otherwise.
        node.sysctl("ipv4/icmp_ratelimit", "0");
        let mut servers = Vec::new();
        let client = pod(&node, "pod0", "10.0.0.2");
        let pods: Vec<Netns> = LOCAL
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let addr = endpoint(name);
                let pod = pod(&node, &format!("pod{}", i + 1), &addr.ip().to_string());
                serve(&pod, name, addr, &mut servers);
                pod
            })
            .collect();
        let far = pod(&node, "far0", Client::FarPod.address().0);
        let other = Netns::new("other");
        connect(
            &node,
            "far1",
            "192.168.2.1/24",
            &other,
            "eth0",
            "192.168.2.2/24",
        );
        for name in FAR {
            other.ip(&format!("addr add {}/32 dev lo", endpoint(name).ip()));
            serve(&other, name, endpoint(name), &mut servers);
        }
        other.ip("route add default via 192.168.2.1");
        node.ip("route add 10.180.1.0/24 via 192.168.2.2");
        let outside = stranger(&node, "eth0", NODE_ADDRESSES[0], Client::Outside);
        let blocked = stranger(&node, "eth1", NODE_ADDRESSES[1], Client::Blocked);
        let beyond = Netns::new("beyond");
        connect(
            &node,
            "eth2",
            "192.168.3.1/24",
            &beyond,
            "eth0",
            "192.168.3.2/24",
        );
        beyond.ip("route add default via 192.168.3.1");
        let (own, _) = Client::Node.address();
        node.ip(&format!("route add default via 192.168.3.2 src {own}"));
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

    fn sync(&mut self, desired: &DesiredState) {
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

    fn ask(&self, flow: &Flow) -> io::Result<Answer> {
        let protocol = match flow.protocol {
            Protocol::Udp => peer::Protocol::Udp,
            _ => peer::Protocol::Tcp,
        };
        let to = flow.to.parse().unwrap();
        self.namespace(flow.from)
            .enter(|| peer::ask(protocol, to, SILENCE))
    }

    /// What is wrong about a row, if anything.
    fn check(&self, flow: &Flow) -> Result<(), String> {
        if flow.from == Client::NodeAsVip {
            self.node.ip(&format!("addr add {VIP}/32 dev lo"));
        }
        let checked = self.ends_as_expected(flow);
        if flow.from == Client::NodeAsVip {
            self.node.ip(&format!("addr del {VIP}/32 dev lo"));
        }
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
        let client: IpAddr = flow.from.address().0.parse().unwrap();
        let mut missing: BTreeSet<SocketAddr> = expected.iter().map(|(addr, _)| *addr).collect();
        let questions = if expected.len() == 1 { 3 } else { 60 };
        for _ in 0..questions {
            let answer = self
                .ask(flow)
                .map_err(|e| format!("nobody answers: {e:?}"))?;
            let addr = endpoint(&answer.name);
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
        let addr: SocketAddr = flow.to.parse().unwrap();
        let on_node = self.own_addresses().contains(&addr.ip());
        let holder = if on_node { &self.node } else { &self.beyond };
        if !on_node {
            holder.ip(&format!("addr add {}/32 dev lo", addr.ip()));
        }
        let protocol = match flow.protocol {
            Protocol::Udp => peer::Protocol::Udp,
            _ => peer::Protocol::Tcp,
        };
        let server = holder.serve(protocol, flow.to, "holder");
        let answer = self.ask(flow);
        drop(server);
        if !on_node {
            holder.ip(&format!("addr del {}/32 dev lo", addr.ip()));
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

/// A pod with a routed address, as our pod network makes it.
fn pod(node: &Netns, ifname: &str, addr: &str) -> Netns {
    let pod = Netns::new(ifname);
    let own = format!("{addr}/32");
    connect(node, ifname, "10.180.0.250/32", &pod, "eth0", &own);
    node.ip(&format!("route add {own} dev {ifname}"));
    pod.ip("route add 10.180.0.250 dev eth0");
    pod.ip("route add default via 10.180.0.250");
    pod
}

/// Somebody outside, whose only address is the one that rows name.
fn stranger(node: &Netns, ifname: &str, node_address: &str, client: Client) -> Netns {
    let stranger = Netns::new(ifname);
    let (addr, _) = client.address();
    let (here, there) = (format!("{node_address}/24"), format!("{addr}/32"));
    connect(node, ifname, &here, &stranger, "eth0", &there);
    node.ip(&format!("route add {there} dev {ifname}"));
    stranger.ip(&format!("route add {node_address} dev eth0"));
    stranger.ip(&format!("route add default via {node_address}"));
    stranger
}

#[test]
fn every_flow_ends_as_its_row_says() {
    each_flavour(|flavour| {
        let mut world = World::new(Config {
            flavour: Some(flavour),
            ..Config::default()
        });
        let (mut wrong, mut count) = (String::new(), 0);
        let mut current = None;
        for flow in flows() {
            let desired = flow.given.compiled().desired;
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
                let Flow {
                    cases,
                    from,
                    to,
                    expect,
                    given,
                    ..
                } = flow;
                writeln!(
                    wrong,
                    "{cases:?} {} [{}] {from:?} → {to}, {expect}: {error}",
                    given.spec, given.endpoints
                )
                .unwrap();
            }
        }
        eprintln!("{count} flows");
        assert!(wrong.is_empty(), "{wrong}");
    });
}
