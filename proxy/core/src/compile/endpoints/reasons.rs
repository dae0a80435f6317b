//! Why an endpoint answers, or does not.

use std::net::SocketAddr;

use super::{Candidate, Known, Topology};
use crate::ingest::SliceEndpoint;
use crate::node::Node;

/// An endpoint, and what became of it.
pub(crate) struct Judged {
    pub(crate) addr: SocketAddr,
    /// Where it runs, if that is known.
    pub(crate) node: Option<String>,
    pub(crate) local: bool,
    /// Why it is not in the set of policy Cluster, if it is not.
    pub(crate) cluster: Option<String>,
    /// The same of policy Local.
    pub(crate) own: Option<String>,
}

/// All endpoints, and how they were chosen from.
pub(crate) struct Choice {
    pub(crate) judged: Vec<Judged>,
    /// The hints that decide for policy Cluster, such as `zone a`.
    pub(crate) hints: Option<String>,
    /// No endpoint was ready, so that those that terminate answer: Cluster and Local.
    pub(crate) fallback: (bool, bool),
}

impl Known<'_> {
    /// The same rules as [`cluster`](Known::cluster) and [`local`](Known::local), with words.
    pub(crate) fn choice(&self, node: &Node) -> Choice {
        let (cluster, own) = (self.cluster(node), self.local());
        let chosen = |set: &[crate::desired::Endpoint], addr| set.iter().any(|e| e.addr == addr);
        let ready = self.0.values().filter(|c| c.ready()).count();
        let ready_here = self.0.values().filter(|c| c.ready() && c.local).count();
        let topology = self.topology(node);
        let judge = |(&addr, candidate): (&SocketAddr, &Candidate<'_>)| {
            let unready = |others, place| unready(candidate, others, place);
            let by_cluster = || {
                unready(ready, "").unwrap_or_else(|| left_by(topology, candidate.endpoint, node))
            };
            let by_local = || {
                if candidate.local {
                    unready(ready_here, " on this node").unwrap_or_default()
                } else {
                    "not on this node, which policy Local wants".to_owned()
                }
            };
            Judged {
                addr,
                node: candidate.endpoint.node_name.as_deref().map(str::to_owned),
                local: candidate.local,
                cluster: (!chosen(&cluster, addr)).then(by_cluster),
                own: (!chosen(&own, addr)).then(by_local),
            }
        };
        Choice {
            judged: self.0.iter().map(judge).collect(),
            hints: match topology {
                Topology::Off => None,
                Topology::Node(name) => Some(format!("node {name}")),
                Topology::Zone(zone) => Some(format!("zone {zone}")),
            },
            fallback: (
                ready == 0 && !cluster.is_empty(),
                ready_here == 0 && !own.is_empty(),
            ),
        }
    }
}

fn unready(candidate: &Candidate<'_>, ready: usize, place: &str) -> Option<String> {
    let conditions = candidate.endpoint.conditions;
    match (conditions.ready, conditions.serving, conditions.terminating) {
        (true, _, _) => None,
        (false, true, true) => Some(format!("terminating, while {ready} are ready{place}")),
        (false, false, true) => Some("terminating, and does not serve".to_owned()),
        (false, _, false) => Some("not ready".to_owned()),
    }
}

fn left_by(topology: Topology<'_>, endpoint: &SliceEndpoint, node: &Node) -> String {
    let hinted = topology.hints(endpoint).join(", ");
    match topology {
        Topology::Node(_) => format!("hints give it to node {hinted}, this is {}", node.name),
        Topology::Zone(zone) => format!("hints give it to zone {hinted}, this node is in {zone}"),
        // Every ready endpoint is chosen then.
        Topology::Off => String::new(),
    }
}
