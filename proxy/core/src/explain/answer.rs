//! What an answer says.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::Judgement;

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
