//! What a desired state means for a new connection, without any kernel.
//!
//! This is the oracle for backends: a real packet must end as it is said here.
//! What a client has met before is for [`Memory`] (affinity, which narrows the
//! answer to one of the endpoints given here) and [`interpret_next`] (flows and
//! connections that there are already). Deliberately not modelled: where a packet
//! goes that no Service concerns, and what others' rules do to one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::desired::{
    DesiredState, Endpoint, Family, FamilyState, Frontend, FrontendKind, LocalSources, Protocol,
    ServicePort, ServicePortName, Source, Verdict,
};

mod memory;

pub use memory::Memory;

/// A new connection as this node meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The client.
    pub src: IpAddr,
    /// Whom it asks for.
    pub dst: SocketAddr,
    /// Transport.
    pub protocol: Protocol,
    /// The device that it came by; `None` if this node sends it.
    pub ifname: Option<String>,
}

/// Whom an endpoint takes for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// The client itself.
    Client,
    /// This node, by one of its addresses.
    Node,
}

/// How a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One of these endpoints answers, each with the same probability.
    Answered(BTreeMap<SocketAddr, Seen>),
    /// Port unreachable, connection refused.
    Refused,
    /// Nothing comes back.
    Unanswered,
    /// No Service is meant; the packet goes its way as if there were no service
    /// proxy.
    Untouched,
}

/// What becomes of `packet` on a node that has `addresses` (127.0.0.0/8 and `::1`
/// count without being named).
pub fn interpret(desired: &DesiredState, addresses: &BTreeSet<IpAddr>, packet: &Packet) -> Outcome {
    if packet.ifname.is_some() && packet.dst.ip().is_loopback() {
        // What comes from the wire to a loopback address is nobody's, ever.
        return Outcome::Unanswered;
    }
    let half = desired.family(Family::of(packet.dst.ip()));
    let Some((_, port, frontend)) = meant(half, addresses, packet) else {
        return Outcome::Untouched;
    };
    let of_node = is_of_node(addresses, packet.src);
    let ranges = port.source_ranges.as_deref();
    let admitted = ranges.is_none_or(|r| r.iter().any(|range| range.contains(packet.src)));
    if frontend.kind == FrontendKind::LoadBalancer && !admitted {
        return Outcome::Unanswered;
    }
    match half.verdict(port, frontend, source(half, packet, of_node)) {
        Verdict::Refuse => Outcome::Refused,
        Verdict::Drop => Outcome::Unanswered,
        Verdict::Answer {
            endpoints,
            masquerade,
        } => {
            let seen = |endpoint: &Endpoint| {
                let addr = endpoint.addr.ip();
                let itself =
                    addr == packet.src && (endpoint.local || port.unplaced.contains(&addr));
                let seen = if masquerade || itself {
                    Seen::Node
                } else {
                    Seen::Client
                };
                (endpoint.addr, seen)
            };
            Outcome::Answered(endpoints.iter().map(seen).collect())
        }
    }
}

/// What becomes of the next packet of a flow or connection, given whom its last one met: an
/// endpoint and whom that takes for the client, or nobody, if it was not translated.
///
/// A connection of TCP goes on whatever becomes of Services. Whoever keeps a port without having
/// a connection goes on as long as the endpoint serves, and begins anew otherwise.
pub fn interpret_next(
    desired: &DesiredState,
    addresses: &BTreeSet<IpAddr>,
    packet: &Packet,
    met: Option<(SocketAddr, Seen)>,
) -> Outcome {
    let half = desired.family(Family::of(packet.dst.ip()));
    let serves = |endpoint: &SocketAddr| {
        let service = meant(half, addresses, packet);
        service.is_some_and(|(_, port, _)| port.serving.contains(endpoint))
    };
    match (packet.protocol, met) {
        (Protocol::Tcp, None) => Outcome::Untouched,
        (Protocol::Tcp, Some(met)) => Outcome::Answered([met].into()),
        (_, Some(met)) if serves(&met.0) => Outcome::Answered([met].into()),
        (_, _) => interpret(desired, addresses, packet),
    }
}

fn is_of_node(addresses: &BTreeSet<IpAddr>, addr: IpAddr) -> bool {
    addr.is_loopback() || addresses.contains(&addr)
}

/// The frontend that is meant, and whose it is; an address of its own comes before a NodePort.
fn meant<'a>(
    half: &'a FamilyState,
    addresses: &BTreeSet<IpAddr>,
    packet: &Packet,
) -> Option<(&'a ServicePortName, &'a ServicePort, &'a Frontend)> {
    let addr = packet.dst.ip();
    let node_port = is_of_node(addresses, addr) && half.node_ports.serves(addr);
    let of_port = |(name, port): (&'a ServicePortName, &'a ServicePort)| {
        port.frontends.iter().map(move |f| (name, port, f))
    };
    let mut all = half.services.iter().flat_map(of_port);
    let asked = |f: &Frontend| f.port == packet.dst.port() && f.protocol == packet.protocol;
    let exact = all
        .clone()
        .find(|(_, _, f)| asked(f) && f.addr == addr && f.kind != FrontendKind::NodePort);
    exact
        .or_else(|| all.find(|(_, _, f)| node_port && asked(f) && f.kind == FrontendKind::NodePort))
}

fn source(half: &FamilyState, packet: &Packet, of_node: bool) -> Source {
    let ifname = packet.ifname.as_deref();
    let pod = match &half.local_sources {
        LocalSources::Unknown => false,
        LocalSources::Networks(networks) => networks.iter().any(|n| n.contains(packet.src)),
        LocalSources::Interface(name) => ifname == Some(name),
        LocalSources::InterfacePrefix(prefix) => ifname.is_some_and(|n| n.starts_with(prefix)),
    };
    match (pod, of_node) {
        (true, _) => Source::Pod,
        (false, true) => Source::Host,
        (false, false) => Source::Outside,
    }
}
