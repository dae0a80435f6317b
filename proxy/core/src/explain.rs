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

use ipnetwork::IpNetwork;

use crate::compile::endpoints::Known;
use crate::compile::endpoints::reasons::Choice;
use crate::desired::{
    DesiredState, Family, FamilyState, Frontend, FrontendKind, ServicePort, ServicePortName,
    TrafficPolicy,
};
use crate::model::Model;
use crate::node::Node;
use crate::skipped::{ObjectKey, Skipped};

mod answer;
mod candidates;
mod clients;
pub mod kernel;
mod skips;
mod target;
#[cfg(test)]
mod tests;
mod text;

pub use answer::{Candidate, Explanation, Left, LeftOut, Policies, Served};
pub use clients::{Client, Judgement, Outcome};
pub use target::{BadTarget, Target};

use candidates::candidates;

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
