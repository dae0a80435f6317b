//! Clients come back to the endpoint that they have met: as the interpreter says, and on the
//! kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{
    DesiredState, Frontend, FrontendKind, LocalSources, TrafficPolicy,
};
use seaway_proxy_core::interpret::{Memory, Outcome, Packet};
use seaway_proxy_iptables::{Flavour, Iptables};
use seaway_testbed::peer::{PATIENCE, Protocol};
use seaway_testbed::uninterrupted;

use crate::node::{Node, VIP, Who, block_on, config, each_flavour, endpoint, packet, web};

/// The node's uplink address, at the NodePort of every Service port here.
const NODE_PORT: &str = "192.168.60.1:30001";
/// How much sooner a set may forget somebody than its timeout says.
const COARSE: Duration = Duration::from_millis(100);

/// The Service with affinity for `seconds`, also at a NodePort.
fn sticky(pods: u8, seconds: u64) -> DesiredState {
    let mut desired = web(pods);
    for port in desired.v4.services.values_mut() {
        port.affinity = Some(Duration::from_secs(seconds));
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        port.local = port.cluster.clone();
    }
    desired
}

/// The same without one of its endpoints.
fn without(name: &str, mut desired: DesiredState) -> DesiredState {
    let gone = endpoint(name);
    for port in desired.v4.services.values_mut() {
        port.cluster.retain(|e| e.addr != gone);
        port.local.retain(|e| e.addr != gone);
        port.serving.retain(|addr| *addr != gone);
    }
    desired
}

/// Of policy Local, with pods told by their network.
fn local(mut desired: DesiredState) -> DesiredState {
    let pods = vec!["10.244.0.0/16".parse().unwrap()];
    desired.v4.local_sources = LocalSources::Networks(pods);
    for port in desired.v4.services.values_mut() {
        port.external = TrafficPolicy::Local;
    }
    desired
}

/// A node on which nobody may answer but whom the interpreter admits.
struct Judged {
    node: Node,
    own: BTreeSet<IpAddr>,
    memory: Memory,
    began: Instant,
}

impl Judged {
    fn new(flavour: Flavour) -> Self {
        let node = Node::new(config(flavour));
        Self {
            own: node.own_addresses(),
            node,
            memory: Memory::default(),
            began: Instant::now(),
        }
    }

    fn sync(&mut self, desired: &DesiredState) -> bool {
        let changed = self.node.sync(desired);
        self.memory.follow(desired);
        changed
    }

    /// Who has answered what was asked after `before`. Whom the kernel may have forgotten by now
    /// counts as forgotten.
    #[track_caller]
    fn judge(&mut self, packet: &Packet, name: &str, before: Duration) {
        let now = self.began.elapsed() + COARSE;
        let (desired, addr) = (&self.node.desired, endpoint(name));
        let outcome = self.memory.interpret(desired, &self.own, packet, now);
        let Outcome::Answered(by) = &outcome else {
            panic!("{name} answers: {outcome:?}");
        };
        assert!(by.contains_key(&addr), "{name} answers, of {by:?}");
        self.memory.met(desired, &self.own, packet, addr, before);
    }

    #[track_caller]
    fn ask(&mut self, who: Who, protocol: Protocol, address: &str) -> String {
        let before = self.began.elapsed();
        let answer = self.node.namespace(who).ask(protocol, address).unwrap();
        self.judge(&packet(who, protocol, address), &answer.name, before);
        answer.name
    }

    /// Asks often enough that two endpoints both answer: each is left out with 1 in 2^40.
    fn answers(&mut self, who: Who, protocol: Protocol, address: &str) -> BTreeSet<String> {
        (0..40).map(|_| self.ask(who, protocol, address)).collect()
    }

    /// The one that answers every time.
    #[track_caller]
    fn only(&mut self, who: Who, protocol: Protocol, address: &str) -> String {
        let names = self.answers(who, protocol, address);
        assert_eq!(names.len(), 1, "{names:?}");
        names.into_iter().next().unwrap()
    }
}

fn sets(n: &Node) -> Vec<String> {
    let listed = n.host.must_run(&["ipset", "list", "-n"]);
    listed.lines().map(str::to_owned).collect()
}

/// How many clients are remembered, over all sets.
fn entries(n: &Node) -> usize {
    let dump = n.host.must_run(&["ipset", "save"]);
    dump.lines().filter(|line| line.starts_with("add ")).count()
}

/// Cases 180, 181, 184, 185, 189, 190.
#[test]
fn a_client_comes_back_to_its_endpoint() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        assert!(n.sync(&sticky(2, 10_800)));
        assert!(
            !n.sync(&sticky(2, 10_800)),
            "what was read is what was written"
        );
        // Rules name sets, of which the kernel tells numbers.
        let rendered = n.node.backend.render(&sticky(2, 10_800));
        assert_eq!(n.node.read_without_save(), rendered);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let first = n.only(Who::Client, protocol, VIP);
            assert_eq!(
                n.only(Who::Client, protocol, NODE_PORT),
                first,
                "on every address"
            );
            // The daemon starts again.
            let start = || block_on(Iptables::new(config(flavour)));
            n.node.backend = n.node.host.enter(start).unwrap();
            assert!(!n.sync(&sticky(2, 10_800)));
            assert_eq!(n.only(Who::Client, protocol, VIP), first);
            n.only(Who::Host, protocol, VIP);
        }
        // Its endpoint goes, and comes back: the client has moved and stays there.
        let first = n.only(Who::Client, Protocol::Tcp, VIP);
        assert!(n.sync(&without(&first, sticky(2, 10_800))));
        let moved = n.only(Who::Client, Protocol::Tcp, VIP);
        assert_ne!(moved, first);
        assert!(n.sync(&sticky(2, 10_800)));
        assert_eq!(n.only(Who::Client, Protocol::Tcp, VIP), moved);
    });
}

/// Case 187.
#[test]
fn affinity_is_switched_on_and_off_for_the_next_connection() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        n.sync(&web(2));
        for _ in 0..2 {
            let both = n.answers(Who::Client, Protocol::Tcp, VIP);
            assert_eq!(both.len(), 2, "{both:?}");
            assert!(n.sync(&sticky(2, 10_800)));
            n.only(Who::Client, Protocol::Tcp, VIP);
            assert!(n.sync(&web(2)));
            assert!(sets(&n.node).is_empty(), "{:?}", sets(&n.node));
        }
        let both = n.answers(Who::Client, Protocol::Tcp, VIP);
        assert_eq!(both.len(), 2, "{both:?}");
    });
}

/// Case 188.
#[test]
fn among_local_endpoints_too() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        let mut desired = local(sticky(2, 10_800));
        n.sync(&desired);
        let first = n.only(Who::Outside, Protocol::Tcp, NODE_PORT);
        // It stays when others go, as long as it is there.
        for port in desired.v4.services.values_mut() {
            port.local.retain(|e| e.addr == endpoint(&first));
            assert_eq!(port.local.len(), 1);
        }
        n.sync(&desired);
        assert_eq!(n.only(Who::Outside, Protocol::Tcp, NODE_PORT), first);
        let seen = n.node.ask(Who::Outside, Protocol::Tcp, NODE_PORT).unwrap();
        assert_eq!(seen.client.ip().to_string(), crate::node::OUTSIDE);
    });
}

/// Case 186: what a client has met at one port says nothing about another.
#[test]
fn ports_of_one_service_choose_for_themselves() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        n.sync(&sticky(2, 10_800));
        n.node.host.ip("route add 10.9.0.0/24 via 10.244.9.2");
        let mut differ = 0;
        for i in 1..=30 {
            n.node.client.ip(&format!("addr add 10.9.0.{i}/32 dev lo"));
            n.node.client.ip(&format!(
                "route replace default via 10.244.9.1 src 10.9.0.{i}"
            ));
            let mut both = || {
                [Protocol::Tcp, Protocol::Udp].map(|protocol| {
                    let before = n.began.elapsed();
                    let answer = n.node.client.ask(protocol, VIP).unwrap();
                    let src = answer.client.ip();
                    assert_eq!(src.to_string(), format!("10.9.0.{i}"));
                    let asked = packet(Who::Client, protocol, VIP);
                    n.judge(&Packet { src, ..asked }, &answer.name, before);
                    answer.name
                })
            };
            let met = both();
            assert_eq!(both(), met, "each port keeps its choice");
            differ += u32::from(met[0] != met[1]);
        }
        // All alike, or all different, by chance: once in 2^29.
        assert!((1..30).contains(&differ), "{differ} of 30");
    });
}

/// Cases 182 and 183.
#[test]
fn a_client_is_forgotten_after_a_while() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        n.sync(&sticky(2, 2));
        // Every connection begins the time anew: three times as long altogether.
        let start = Instant::now();
        let mut met = BTreeSet::new();
        while start.elapsed() < Duration::from_secs(6) {
            met.insert(n.ask(Who::Client, Protocol::Tcp, VIP));
        }
        assert_eq!(met.len(), 1, "{met:?}");

        n.sync(&sticky(2, 1));
        let mut met = BTreeSet::new();
        for _ in 0..20 {
            met.insert(n.ask(Who::Client, Protocol::Tcp, VIP));
            if met.len() == 2 {
                return;
            }
            let asked = Instant::now();
            while entries(&n.node) > 0 {
                assert!(
                    asked.elapsed() < PATIENCE + Duration::from_secs(3),
                    "never forgotten"
                );
            }
        }
        panic!("{met:?} of two in 20 rounds: one in a million");
    });
}

/// The address of one of many clients.
fn numbered(i: u16) -> Ipv4Addr {
    let [high, low] = i.to_be_bytes();
    Ipv4Addr::new(10, 9, high, low)
}

/// Far more than the 100 of `xt_recent`.
#[test]
fn a_thousand_clients_keep_their_endpoints() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        n.sync(&sticky(2, 10_800));
        n.node.client.ip("route add local 10.9.0.0/16 dev lo");
        n.node.host.ip("route add 10.9.0.0/16 via 10.244.9.2");
        let ask = |i: u16| {
            let socket = UdpSocket::bind((numbered(i), 0)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect(VIP).unwrap();
            socket.send(b"?").unwrap();
            let mut answer = [0; 100];
            let length = uninterrupted(|| socket.recv(&mut answer)).unwrap();
            let text = String::from_utf8_lossy(&answer[..length]).into_owned();
            text.split(' ').next().unwrap().to_owned()
        };
        let all = || -> BTreeMap<u16, String> { (1..=1000).map(|i| (i, ask(i))).collect() };
        let mut round = || {
            let before = n.began.elapsed();
            let met = n.node.client.enter(all);
            for (i, name) in &met {
                let src = numbered(*i).into();
                let asked = packet(Who::Client, Protocol::Udp, VIP);
                n.judge(&Packet { src, ..asked }, name, before);
            }
            met
        };
        let first = round();
        assert_eq!(first.values().collect::<BTreeSet<_>>().len(), 2);
        let second = round();
        let moved = first.iter().filter(|(i, name)| second[i] != **name).count();
        assert_eq!(moved, 0, "of 1,000 clients");
        assert_eq!(entries(&n.node), 1000);
        n.node.remove_all();
        assert!(sets(&n.node).is_empty(), "{:?}", sets(&n.node));
    });
}

#[test]
fn a1_affinity_holds_on_every_address_under_policy_local() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        let mut desired = local(sticky(2, 10_800));
        for port in desired.v4.services.values_mut() {
            let balanced = Frontend {
                addr: "192.0.2.10".parse().unwrap(),
                kind: FrontendKind::LoadBalancer,
                ..port.frontends[0]
            };
            port.frontends.push(balanced);
        }
        n.sync(&desired);
        let first = n.only(Who::Outside, Protocol::Tcp, NODE_PORT);
        let to_node = "route replace 192.0.2.10/32 via 192.168.60.1";
        n.node.outside.ip(to_node);
        assert_eq!(n.only(Who::Outside, Protocol::Tcp, "192.0.2.10:80"), first);
    });
}

#[test]
fn a4_affinity_works_again_after_there_was_nobody() {
    each_flavour(|flavour| {
        let mut n = Judged::new(flavour);
        n.sync(&sticky(2, 10_800));
        n.only(Who::Client, Protocol::Tcp, VIP);
        n.sync(&sticky(0, 10_800));
        n.node
            .ask(Who::Client, Protocol::Tcp, VIP)
            .expect_err("nobody is there");
        n.sync(&sticky(2, 10_800));
        n.only(Who::Client, Protocol::Tcp, VIP);
    });
}
