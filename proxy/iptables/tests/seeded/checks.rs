//! What rules have to do, and how one sees that they do not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Family, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName,
};
use seaway_proxy_core::flows::{Client, Flow, Given, NODE_ADDRESSES, flows, in_family};
use seaway_proxy_core::interpret::{Outcome, Seen};
use seaway_proxy_iptables::{Config, Flavour, Iptables};

use crate::rules::{End, Packet, Rules};

fn backend() -> Iptables {
    let config = Config {
        flavour: Some(Flavour::Nft),
        ipv6: Some(true),
        affinity: Some(true),
        ..Config::default()
    };
    // With the flavour given there is nothing to wait for.
    match pin!(Iptables::new(config)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(backend) => backend.unwrap(),
        Poll::Pending => panic!("no command should run"),
    }
}

/// A row, and the text of the rules that it comes to.
struct World {
    flow: Flow,
    text: String,
}

impl World {
    fn new(flow: Flow) -> Self {
        let rendered = backend().render(&flow.given.compiled(flow.family).desired);
        let text = match flow.family {
            Family::V4 => rendered.v4.to_string(),
            Family::V6 => rendered.v6.to_string(),
        };
        Self { flow, text }
    }

    fn rules(&self, fault: fn(&str) -> String) -> Rules {
        Rules::parse(&fault(&self.text), self.flow.node_addresses())
    }
}

fn packet(flow: &Flow) -> Packet {
    let packet = flow.packet();
    Packet {
        src: packet.src,
        dst: packet.dst,
        protocol: match packet.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        },
        ifname: packet.ifname,
        state: "NEW",
        translated: false,
        mark: 0,
        sets: BTreeSet::new(),
    }
}

/// How a new connection ends, with everybody's share, and what else is wrong.
fn outcome(rules: &Rules, first: Packet) -> Result<(Outcome, BTreeMap<SocketAddr, f64>), String> {
    let sent = first.ifname.is_none();
    let entry = if sent { "OUTPUT" } else { "PREROUTING" };
    let mut answers = BTreeMap::new();
    let mut shares = BTreeMap::new();
    let mut other = Vec::new();
    for (share, packet, end) in rules.hook("nat", entry, first) {
        if share == 0.0 {
            continue;
        }
        let here = packet.dst.ip().is_loopback() || rules.own.contains(&packet.dst.ip());
        let mut hooks = vec![if sent { "OUTPUT" } else { "FORWARD" }];
        if here {
            hooks = if sent {
                vec!["OUTPUT", "INPUT"]
            } else {
                vec!["INPUT"]
            };
        }
        let ends = hooks
            .into_iter()
            .flat_map(|hook| rules.hook("filter", hook, packet.clone()));
        let ends: Vec<End> = ends.map(|(_, _, end)| end).collect();
        if ends.contains(&End::Reject) {
            other.push(Outcome::Refused);
        } else if ends.contains(&End::Drop) {
            other.push(Outcome::Unanswered);
        } else if let End::Dnat(to) = end {
            answers.insert(to, seen(rules, packet)?);
            *shares.entry(to).or_insert(0.0) += share;
        } else {
            other.push(Outcome::Untouched);
        }
    }
    if let Some(one) = other.pop() {
        if !answers.is_empty() || other.iter().any(|another| *another != one) {
            return Err(format!("{answers:?} or {one:?}"));
        }
        return Ok((one, shares));
    }
    Ok((Outcome::Answered(answers), shares))
}

/// Whom the endpoint sees.
fn seen(rules: &Rules, packet: Packet) -> Result<Seen, String> {
    let mut ways = rules.hook("nat", "POSTROUTING", packet);
    let (_, packet, end) = ways.pop().ok_or("nothing comes out")?;
    match end {
        End::Masquerade(true) if packet.mark == 0 => Ok(Seen::Node),
        End::Masquerade(true) => Err(format!("leaves with mark {:#x}", packet.mark)),
        End::Masquerade(false) => Err("masqueraded with its port kept".to_owned()),
        _ => Ok(Seen::Client),
    }
}

fn check(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    let (flow, rules) = (&world.flow, world.rules(fault));
    let (ended, shares) = outcome(&rules, packet(flow))?;
    if ended != flow.expected() {
        return Err(format!("{ended:?}"));
    }
    #[allow(clippy::cast_precision_loss, reason = "a handful of endpoints")]
    let fair = 1.0 / shares.len() as f64;
    let unfair = shares.values().any(|share| (share - fair).abs() > 1e-6);
    if unfair {
        return Err(format!("{shares:?}"));
    }
    Ok(())
}

/// One family's worlds, made once.
pub(crate) struct Checks {
    rows: Vec<World>,
    besides: [(World, Check); 5],
}

type Check = fn(&World, fn(&str) -> String) -> Result<(), String>;

impl Checks {
    pub(crate) fn new(family: Family) -> Self {
        let rows = flows().into_iter().map(|flow| Flow { family, ..flow });
        let world = |spec, endpoints, from, to| {
            World::new(Flow {
                cases: &[],
                family,
                given: Given {
                    spec,
                    endpoints,
                    node: |_| {},
                },
                from,
                to,
                protocol: Protocol::Tcp,
                expect: "untouched",
            })
        };
        let (sticky, local) = (
            r#"{"sessionAffinity": "ClientIP"}"#,
            r#"{"externalTrafficPolicy": "Local"}"#,
        );
        let (pod, outside) = (Client::Pod, Client::Outside);
        // What no row says, since it is no new connection, or one of several.
        let besides: [(World, Check); 5] = [
            (
                world(sticky, "h1 h2 t1 t2", outside, "1.2.3.4:80"),
                affinity,
            ),
            (world("{}", "h1", pod, "10.0.0.9:1234"), invalid),
            (world("{}", "", pod, "172.30.0.41:80"), connected),
            (world(local, "h1", outside, "192.168.0.2:32000"), health),
            (world("{}", "h1", outside, "127.0.0.1:81"), martian),
        ];
        Self {
            rows: rows.map(World::new).collect(),
            besides,
        }
    }

    /// What is not as it should be with this fault.
    pub(crate) fn wrong(&self, fault: fn(&str) -> String) -> impl Iterator<Item = String> {
        let row = move |world: &World| {
            let error = check(world, fault).err()?;
            Some(format!("case {:?}: {error}", world.flow.cases))
        };
        let besides = self.besides.iter();
        let besides = besides.filter_map(move |(world, check)| check(world, fault).err());
        self.rows.iter().filter_map(row).chain(besides)
    }
}

/// A client that an endpoint has met comes back to it, for three hours.
fn affinity(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    let (flow, rules) = (&world.flow, world.rules(fault));
    if rules.sets.values().any(|timeout| *timeout != 10_800) || rules.sets.len() != 4 {
        return Err(format!("{:?}", rules.sets));
    }
    for (_, met, end) in rules.hook("nat", "PREROUTING", packet(flow)) {
        let again = Packet {
            sets: met.sets.clone(),
            ..packet(flow)
        };
        let ends = rules.hook("nat", "PREROUTING", again);
        if !ends
            .iter()
            .all(|(share, _, again)| *share == 0.0 || *again == end)
        {
            return Err(format!("met {end:?}, then {ends:?}"));
        }
    }
    Ok(())
}

/// A pod's packet that conntrack cannot place goes to nobody; a stranger's to whoever it wants.
fn invalid(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    let (flow, rules) = (&world.flow, world.rules(fault));
    for hook in ["FORWARD", "INPUT"] {
        for (from, dropped) in [(Client::Pod, true), (Client::Outside, false)] {
            let mut packet = packet(&Flow { from, ..*flow });
            packet.state = "INVALID";
            let ends = rules.hook("filter", hook, packet);
            if ends
                .iter()
                .any(|(_, _, end)| (*end == End::Drop) != dropped)
            {
                return Err(format!("of {from:?}, by {hook}: {ends:?}"));
            }
        }
    }
    Ok(())
}

/// What is connected already is neither refused nor stopped on its way.
fn connected(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    let (flow, rules) = (&world.flow, world.rules(fault));
    for (translated, expect) in [(false, End::Policy), (true, End::Accept)] {
        let mut packet = packet(flow);
        packet.state = "ESTABLISHED";
        packet.translated = translated;
        for (_, _, end) in rules.hook("filter", "FORWARD", packet) {
            if end != expect {
                return Err(format!("translated {translated}: {end:?}"));
            }
        }
    }
    let mut packet = packet(flow);
    packet.mark = 0x4000;
    let ends = rules.hook("filter", "FORWARD", packet);
    if ends.iter().any(|(_, _, end)| *end != End::Accept) {
        return Err(format!("marked: {ends:?}"));
    }
    Ok(())
}

/// A load balancer may ask for this node's health.
fn health(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    let (flow, rules) = (&world.flow, world.rules(fault));
    let ends = rules.hook("filter", "INPUT", packet(flow));
    if ends.iter().any(|(_, _, end)| *end != End::Accept) {
        return Err(format!("health check: {ends:?}"));
    }
    Ok(())
}

/// A loopback address is nobody's outside, also where the kernel would let it in.
fn martian(world: &World, fault: fn(&str) -> String) -> Result<(), String> {
    if world.flow.family == Family::V6 {
        // There is no route_localnet.
        return Ok(());
    }
    let (flow, rules) = (&world.flow, world.rules(fault));
    let ends = rules.hook("filter", "INPUT", packet(flow));
    if ends.iter().any(|(_, _, end)| *end != End::Drop) {
        return Err(format!("loopback from outside: {ends:?}"));
    }
    Ok(())
}

fn service(number: u32, endpoints: u32, local: bool) -> (ServicePortName, ServicePort) {
    let addr = |base: u32, n: u32| IpAddr::from((base + n).to_be_bytes());
    let frontend = |kind, addr, port| Frontend {
        addr,
        port,
        protocol: Protocol::Tcp,
        kind,
    };
    let any = addr(0, 0);
    let cluster: Vec<Endpoint> = (0..endpoints)
        .map(|n| Endpoint {
            addr: SocketAddr::new(addr(0x0ab4_0001, number * endpoints + n), 8080),
            local,
        })
        .collect();
    let node_port = 30_000 + u16::try_from(number).unwrap();
    let port = ServicePort {
        frontends: vec![
            frontend(FrontendKind::ClusterIp, addr(0x0a60_0001, number), 80),
            frontend(FrontendKind::NodePort, any, node_port),
        ],
        local: cluster.iter().filter(|e| e.local).copied().collect(),
        cluster,
        external: seaway_proxy_core::desired::TrafficPolicy::Local,
        ..ServicePort::default()
    };
    let name = ServicePortName {
        namespace: "default".to_owned(),
        name: format!("web-{number}"),
        port: String::new(),
    };
    (name, port)
}

/// Of one Service with as many endpoints.
pub(crate) fn shares(endpoints: u32) -> BTreeMap<SocketAddr, f64> {
    let mut desired = DesiredState::default();
    desired.v4.services.extend([service(0, endpoints, false)]);
    let text = backend().render(&desired).v4.to_string();
    let own = NODE_ADDRESSES.map(|addr| in_family(addr.parse().unwrap(), Family::V4));
    let rules = Rules::parse(&text, own.into());
    let packet = Packet {
        src: "203.0.113.2".parse().unwrap(),
        dst: "10.96.0.1:80".parse().unwrap(),
        protocol: "tcp",
        ifname: Some("eth0".to_owned()),
        state: "NEW",
        translated: false,
        mark: 0,
        sets: BTreeSet::new(),
    };
    let ways = rules.hook("nat", "PREROUTING", packet);
    let share = |(share, packet, _): (f64, Packet, End)| (packet.dst, share);
    ways.into_iter().map(share).collect()
}

/// Rules that are written when one Service's only local endpoint goes to another node.
pub(crate) fn written_for_one_change(services: u32) -> usize {
    let backend = backend();
    let mut desired = DesiredState::default();
    desired
        .v4
        .services
        .extend((0..services).map(|n| service(n, 1, true)));
    let before = backend.render(&desired);
    desired
        .v4
        .services
        .extend([service(services / 2, 1, false)]);
    let after = backend.render(&desired);
    let counts = backend.count(&before, &after);
    assert!(counts.iter().any(|count| count.total > 10_000));
    counts.iter().map(|count| count.written).sum()
}
