//! Why an address behaves as it does: for a person who wonders.
//!
//! ```text
//! Model, Node, DesiredState, Skipped ─┐
//! address, client ────────────────────┴─ explain ──► Explanation
//! Backend::inspect ──────────────────────────────────► Inspection (what the kernel holds)
//! ```
//!
//! The answer comes from the state that the kernel is written from, so it cannot say
//! anything else than what is done. It deliberately does not look at a kernel.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::compile::endpoints::Known;
use crate::compile::endpoints::reasons::Choice;
use crate::desired::{
    DesiredState, Family, FamilyState, Frontend, FrontendKind, Protocol, ServicePort,
    ServicePortName, TrafficPolicy,
};
use crate::model::Model;
use crate::node::Node;
use crate::skipped::{ObjectKey, Skipped};

mod clients;
pub mod kernel;
mod skips;
#[cfg(test)]
mod tests;
mod text;

pub use clients::{Client, Judgement, Outcome};

/// Whom a client asks for; shown as `address:port/protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Address and port.
    pub addr: SocketAddr,
    /// Transport.
    pub protocol: Protocol,
}

/// Text that is no [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// Address or port.
    #[error("{0:?} is not ADDRESS:PORT, such as 10.96.0.1:443 or [fd00::1]:443")]
    Address(String),
    /// 0 is not a port.
    #[error("port 0 is nobody's")]
    Port,
    /// What comes after the slash.
    #[error("{0:?} is none of TCP, UDP and SCTP")]
    Protocol(String),
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let (addr, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
        let addr: SocketAddr = addr
            .parse()
            .map_err(|_not_one| BadTarget::Address(addr.to_owned()))?;
        if addr.port() == 0 {
            return Err(BadTarget::Port);
        }
        let protocol = match protocol.to_ascii_uppercase().as_str() {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => return Err(BadTarget::Protocol(protocol.to_owned())),
        };
        Ok(Self { addr, protocol })
    }
}

/// What is known of addresses besides the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// This node's, as its links have them.
    pub addresses: BTreeSet<IpAddr>,
    /// Where this node's pods are.
    pub own_pods: Vec<IpNetwork>,
    /// Where all pods are, as far as is known.
    pub all_pods: Vec<IpNetwork>,
}

/// Everything that an answer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the API server has told.
    pub model: &'a Model,
    /// This node.
    pub node: &'a Node,
    /// What the kernel should do.
    pub desired: &'a DesiredState,
    /// Everything that is not programmed.
    pub skipped: &'a [Skipped],
    /// About addresses.
    pub surroundings: &'a Surroundings,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked about.
    pub target: String,
    /// Who answers there; nobody if not given.
    pub served: Option<Served>,
    /// What helps to understand that.
    pub notes: Vec<String>,
    /// What is not programmed and touches this address, or the Service that has it.
    pub skipped: Vec<Left>,
}

/// A Service port at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// Of the Service.
    pub namespace: String,
    /// Of the Service.
    pub service: String,
    /// Name of the port; may be empty.
    pub port: String,
    /// How clients come to it, such as `clusterIP`.
    pub kind: String,
    /// All addresses of this Service port in this family.
    pub frontends: Vec<String>,
    /// What decides.
    pub policies: Policies,
    /// What clients meet: the one that was asked for, or one of each sort.
    pub clients: Vec<Judgement>,
    /// Everything in the Service's slices.
    pub endpoints: Vec<Candidate>,
}

/// What decides about a Service port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// `spec.internalTrafficPolicy`
    pub internal: String,
    /// `spec.externalTrafficPolicy`
    pub external: String,
    /// Which of both applies at this address: `internal` or `external`.
    pub applies: String,
    /// Who may use load balancer IPs; everybody if not given.
    pub source_ranges: Option<Vec<IpNetwork>>,
    /// Session affinity by client address.
    pub affinity_seconds: Option<u64>,
    /// The topology hints that decide for policy Cluster.
    pub hints: Option<String>,
    /// Policies whose endpoints all terminate, and answer for want of others.
    pub terminating_fallback: Vec<String>,
    /// Whether all clients of clusterIPs are masqueraded.
    pub masquerade_all: bool,
}

/// An endpoint in a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Where it listens; without a port if none fits.
    pub address: String,
    /// Where it runs.
    pub node: Option<String>,
    /// Whether that is this node.
    pub local: bool,
    /// Policies of this address under which it answers.
    pub answers: Vec<String>,
    /// Policies of this address under which it does not, and why.
    pub left_out: Vec<LeftOut>,
}

/// Why an endpoint does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// `Cluster` or `Local`; both if not given.
    pub policy: Option<String>,
    /// Why.
    pub reason: String,
}

/// An object, or a part of one, that is not programmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// `Service` or `EndpointSlice`
    pub kind: String,
    /// Namespace and name.
    pub object: String,
    /// Path of the field.
    pub field: String,
    /// Why.
    pub reason: String,
}

/// Says what `target` is on this node, and what a client at `from` meets there.
pub fn explain(known: Facts<'_>, target: Target, from: Option<IpAddr>) -> Explanation {
    let half = known.desired.family(Family::of(target.addr.ip()));
    let found = find(half, known.surroundings, target);
    let served = found.map(|(name, port, frontend)| {
        let choice = choice(known, name, frontend);
        Served {
            namespace: name.namespace.clone(),
            service: name.name.clone(),
            port: name.port.clone(),
            kind: frontend.kind.to_string(),
            frontends: port.frontends.iter().map(Frontend::to_string).collect(),
            policies: policies(half, port, frontend, choice.as_ref()),
            clients: clients::judgements(known, half, port, frontend, from),
            endpoints: candidates(known, name, port, frontend, choice),
        }
    });
    Explanation {
        target: target.to_string(),
        notes: skips::notes(half, known.surroundings, target, served.is_some()),
        skipped: skips::touching(known, target, found.map(|(name, ..)| name)),
        served,
    }
}

/// The endpoints that packets for `target` may go on to.
pub fn endpoints(
    desired: &DesiredState,
    surroundings: &Surroundings,
    target: Target,
) -> Vec<SocketAddr> {
    let half = desired.family(Family::of(target.addr.ip()));
    let found = find(half, surroundings, target);
    let own = found
        .map(|(_, port, _)| port.endpoints())
        .unwrap_or_default();
    own.iter().map(|endpoint| endpoint.addr).collect()
}

type Found<'a> = (&'a ServicePortName, &'a ServicePort, &'a Frontend);

/// The frontend that is meant; an address of its own comes before a NodePort.
fn find<'a>(
    half: &'a FamilyState,
    surroundings: &Surroundings,
    target: Target,
) -> Option<Found<'a>> {
    let services = half.services.iter();
    let all = services.flat_map(|(name, port)| port.frontends.iter().map(move |f| (name, port, f)));
    let meant = |f: &Frontend| f.port == target.addr.port() && f.protocol == target.protocol;
    let mut meant = all.filter(|(_, _, f)| meant(f));
    let ip = target.addr.ip();
    let own = |f: &Frontend| f.kind != FrontendKind::NodePort && f.addr == ip;
    if let Some(exact) = meant.clone().find(|(_, _, f)| own(f)) {
        return Some(exact);
    }
    let here = is_of_node(surroundings, ip) && half.node_ports.serves(ip);
    meant.find(|(_, _, f)| here && f.kind == FrontendKind::NodePort)
}

fn is_of_node(surroundings: &Surroundings, addr: IpAddr) -> bool {
    addr.is_loopback() || surroundings.addresses.contains(&addr)
}

fn choice(known: Facts<'_>, name: &ServicePortName, frontend: &Frontend) -> Option<Choice> {
    let key = ObjectKey::new(&name.namespace, &name.name);
    let mut ports = known.model.service(&key)?.ports.iter();
    let port = ports.find(|port| port.name == name.port)?;
    let family = Family::of(frontend.addr);
    Some(Known::of(known.model, &key, port, known.node, family).choice(known.node))
}

fn policies(
    half: &FamilyState,
    port: &ServicePort,
    frontend: &Frontend,
    choice: Option<&Choice>,
) -> Policies {
    let fallback = choice.map_or((false, false), |choice| choice.fallback);
    let fallback = [
        (fallback.0, TrafficPolicy::Cluster),
        (fallback.1, TrafficPolicy::Local),
    ];
    let used = used(port, frontend);
    let fallback = fallback
        .into_iter()
        .filter(|(any, policy)| *any && used.contains(policy));
    Policies {
        internal: word(port.internal).to_owned(),
        external: word(port.external).to_owned(),
        applies: match frontend.kind {
            FrontendKind::ClusterIp => "internal".to_owned(),
            _ => "external".to_owned(),
        },
        source_ranges: port.source_ranges.clone(),
        affinity_seconds: port.affinity.map(|timeout| timeout.as_secs()),
        hints: choice.and_then(|choice| choice.hints.clone()),
        terminating_fallback: fallback
            .map(|(_, policy)| word(policy).to_owned())
            .collect(),
        masquerade_all: half.masquerade_all,
    }
}

fn word(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}

/// The sets of endpoints that clients of a frontend may meet.
fn used(port: &ServicePort, frontend: &Frontend) -> Vec<TrafficPolicy> {
    match (frontend.kind, port.external) {
        (FrontendKind::ClusterIp, _) => vec![port.internal],
        (_, TrafficPolicy::Cluster) => vec![TrafficPolicy::Cluster],
        // Pods and the node itself may use all of them.
        (_, TrafficPolicy::Local) => vec![TrafficPolicy::Cluster, TrafficPolicy::Local],
    }
}

/// Those that compete, then those that cannot.
fn candidates(
    known: Facts<'_>,
    name: &ServicePortName,
    port: &ServicePort,
    frontend: &Frontend,
    choice: Option<Choice>,
) -> Vec<Candidate> {
    let policies = used(port, frontend);
    let judged = choice.map(|choice| choice.judged).unwrap_or_default();
    let of_judged = |judged: crate::compile::endpoints::reasons::Judged| {
        let mut candidate = Candidate {
            address: judged.addr.to_string(),
            node: judged.node,
            local: judged.local,
            answers: Vec::new(),
            left_out: Vec::new(),
        };
        for policy in &policies {
            let reason = match policy {
                TrafficPolicy::Cluster => judged.cluster.clone(),
                TrafficPolicy::Local => judged.own.clone(),
            };
            let policy = word(*policy).to_owned();
            match reason {
                None => candidate.answers.push(policy),
                Some(reason) => candidate.left_out.push(LeftOut {
                    policy: Some(policy),
                    reason,
                }),
            }
        }
        candidate
    };
    let mut found: Vec<_> = judged.into_iter().map(of_judged).collect();
    found.extend(outsiders(known, name, frontend));
    found
}

/// Endpoints of the Service's slices that this port and family cannot use.
fn outsiders(known: Facts<'_>, name: &ServicePortName, frontend: &Frontend) -> Vec<Candidate> {
    let key = ObjectKey::new(&name.namespace, &name.name);
    let family = Family::of(frontend.addr);
    let mut found = Vec::new();
    for slice in known.model.slices_of(&key) {
        let fits = |p: &&crate::ingest::Port| p.name == name.port;
        let same_name = slice.ports.iter().find(fits);
        let port_reason = match same_name {
            Some(port) if port.protocol == frontend.protocol => None,
            Some(port) => Some(format!("its port {:?} is {}", name.port, port.protocol)),
            None => Some(format!("no port of its slice is named {:?}", name.port)),
        };
        for endpoint in &slice.endpoints {
            let other = Family::of(endpoint.addr);
            let reason = if other == family {
                port_reason.clone()
            } else {
                Some(format!("{other}, this address is {family}"))
            };
            let Some(reason) = reason else { continue };
            found.push(Candidate {
                address: endpoint.addr.to_string(),
                node: endpoint.node_name.as_deref().map(str::to_owned),
                local: endpoint.node_name.as_deref() == Some(known.node.name.as_str()),
                answers: Vec::new(),
                left_out: vec![LeftOut {
                    policy: None,
                    reason,
                }],
            });
        }
    }
    found
}
