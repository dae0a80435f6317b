//! What a desired state means for a new connection, without any kernel.
//!
//! This is the oracle for backends: a real packet must end as it is said here.
//! Deliberately not modelled: affinity (a matter of several connections, which
//! narrows the answer to one of the endpoints given here), established
//! connections, and where a packet goes that no Service concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::desired::{
    DesiredState, Endpoint, Family, FamilyState, Frontend, FrontendKind, LocalSources, Protocol,
    ServicePort, Source, Verdict,
};

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
    let half = desired.family(Family::of(packet.dst.ip()));
    let of_node = |addr: IpAddr| addr.is_loopback() || addresses.contains(&addr);
    let node_port = of_node(packet.dst.ip()) && half.node_ports.serves(packet.dst.ip());
    let Some((port, frontend)) = find(half, packet, node_port) else {
        return Outcome::Untouched;
    };
    let ranges = port.source_ranges.as_deref();
    let admitted = ranges.is_none_or(|r| r.iter().any(|range| range.contains(packet.src)));
    if frontend.kind == FrontendKind::LoadBalancer && !admitted {
        return Outcome::Unanswered;
    }
    match half.verdict(port, frontend, source(half, packet, of_node(packet.src))) {
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

/// The frontend that is meant; an address of its own comes before a NodePort.
fn find<'a>(
    half: &'a FamilyState,
    packet: &Packet,
    node_port: bool,
) -> Option<(&'a ServicePort, &'a Frontend)> {
    let ports = half.services.values();
    let mut all = ports.flat_map(|port| port.frontends.iter().map(move |f| (port, f)));
    let meant = |f: &Frontend| f.port == packet.dst.port() && f.protocol == packet.protocol;
    let exact = all
        .clone()
        .find(|(_, f)| meant(f) && f.addr == packet.dst.ip() && f.kind != FrontendKind::NodePort);
    exact.or_else(|| all.find(|(_, f)| node_port && meant(f) && f.kind == FrontendKind::NodePort))
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
