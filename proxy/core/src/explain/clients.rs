//! What clients meet at a frontend.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{Facts, is_of_node};
use crate::desired::{
    FamilyState, Frontend, FrontendKind, LocalSources, ServicePort, Source, Verdict,
};

/// What a client is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Client {
    /// A pod that runs here.
    PodHere,
    /// A pod that runs elsewhere.
    OtherPod,
    /// This node.
    Node,
    /// Anybody else.
    Outside,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PodHere => "a pod of this node",
            Self::OtherPod => "a pod of another node",
            Self::Node => "this node itself",
            Self::Outside => "a client from outside",
        })
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// An endpoint answers.
    Answered,
    /// Connection refused.
    Refused,
    /// Nothing comes back.
    Dropped,
}

/// What one client meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// Which sort of client.
    pub client: Client,
    /// Its address, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// How its connection ends.
    pub outcome: Outcome,
    /// Why nobody answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who answers, each with the same probability.
    pub endpoints: Vec<SocketAddr>,
    /// Whether the endpoint sees this node as the client.
    pub masquerade: bool,
}

pub(super) fn judgements(
    facts: Facts<'_>,
    half: &FamilyState,
    port: &ServicePort,
    frontend: &Frontend,
    from: Option<IpAddr>,
) -> Vec<Judgement> {
    let clients = match from {
        Some(addr) => vec![classify(facts, half, addr)],
        None => vec![Client::PodHere, Client::Node, Client::Outside],
    };
    let judge = |client| judge(half, port, frontend, client, from);
    clients.into_iter().map(judge).collect()
}

/// What an address is to this node.
fn classify(facts: Facts<'_>, half: &FamilyState, addr: IpAddr) -> Client {
    let within = |networks: &[ipnetwork::IpNetwork]| networks.iter().any(|n| n.contains(addr));
    let slices = facts.model.services();
    let mut endpoints = slices
        .flat_map(|(key, _)| facts.model.slices_of(key))
        .flat_map(|slice| &slice.endpoints)
        .filter(|endpoint| endpoint.addr == addr);
    let here = |name: Option<&str>| name == Some(facts.node.name.as_str());
    if within(&facts.surroundings.own_pods) && !is_of_node(facts.surroundings, addr) {
        return Client::PodHere;
    }
    if is_of_node(facts.surroundings, addr) {
        return Client::Node;
    }
    if let Some(endpoint) = endpoints.next() {
        return if here(endpoint.node_name.as_deref()) {
            Client::PodHere
        } else {
            Client::OtherPod
        };
    }
    let detected = matches!(&half.local_sources, LocalSources::Networks(n) if within(n));
    if within(&facts.surroundings.all_pods) || detected {
        return Client::OtherPod;
    }
    Client::Outside
}

fn judge(
    half: &FamilyState,
    port: &ServicePort,
    frontend: &Frontend,
    client: Client,
    from: Option<IpAddr>,
) -> Judgement {
    let mut judgement = Judgement {
        client,
        from,
        outcome: Outcome::Dropped,
        reason: None,
        endpoints: Vec::new(),
        masquerade: false,
    };
    if let Some(ranges) = &port.source_ranges
        && frontend.kind == FrontendKind::LoadBalancer
        && from.is_some_and(|addr| !ranges.iter().any(|range| range.contains(addr)))
    {
        judgement.reason = Some("not within spec.loadBalancerSourceRanges".to_owned());
        return judgement;
    }
    match half.verdict(port, frontend, source(half, client, from)) {
        Verdict::Refuse => {
            judgement.outcome = Outcome::Refused;
            judgement.reason = Some("no endpoint answers on any node".to_owned());
        }
        Verdict::Drop => {
            judgement.reason =
                Some("no endpoint on this node, which policy Local wants".to_owned());
        }
        Verdict::Answer {
            endpoints,
            masquerade,
        } => {
            judgement.outcome = Outcome::Answered;
            judgement.endpoints = endpoints.iter().map(|endpoint| endpoint.addr).collect();
            judgement.masquerade = masquerade;
        }
    }
    judgement
}

/// What the kernel takes a client for.
fn source(half: &FamilyState, client: Client, from: Option<IpAddr>) -> Source {
    let pod = match (&half.local_sources, from) {
        (LocalSources::Unknown, _) => false,
        (LocalSources::Networks(networks), Some(addr)) => {
            networks.iter().any(|network| network.contains(addr))
        }
        // Pods of other nodes come by the uplink.
        _ => client == Client::PodHere,
    };
    match client {
        _ if pod => Source::Pod,
        Client::Node => Source::Host,
        _ => Source::Outside,
    }
}
