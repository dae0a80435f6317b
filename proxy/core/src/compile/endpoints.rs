//! The two sets of endpoints of a Service port.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::desired::{Endpoint, Family};
use crate::ingest::{Conditions, Port, SliceEndpoint};
use crate::model::Model;
use crate::node::Node;
use crate::skipped::ObjectKey;

pub(crate) mod reasons;

/// Every endpoint of a Service port in one family once, whatever its conditions.
pub(crate) struct Known<'a>(BTreeMap<SocketAddr, Candidate<'a>>);

#[derive(Clone, Copy)]
struct Candidate<'a> {
    endpoint: &'a SliceEndpoint,
    local: bool,
}

impl Candidate<'_> {
    /// Of two copies of an endpoint the greater counts: a ready one; else the
    /// one that does not terminate, because the other is a former pod's whose
    /// address has been given to a new one. Hints break ties, so that the order
    /// of slices does not matter.
    fn rank(&self) -> (bool, bool, bool, bool, &[String], &[String]) {
        let Conditions {
            ready,
            serving,
            terminating,
        } = self.endpoint.conditions;
        (
            ready,
            !terminating,
            serving,
            self.local,
            self.endpoint.for_nodes(),
            self.endpoint.for_zones(),
        )
    }

    fn ready(&self) -> bool {
        self.endpoint.conditions.ready
    }

    /// Not ready, but better than nobody.
    fn leaving(&self) -> bool {
        let conditions = self.endpoint.conditions;
        !conditions.ready && conditions.serving && conditions.terminating
    }
}

impl<'a> Known<'a> {
    /// Slice ports match by name and protocol; the Service's targetPort has been
    /// resolved by whoever wrote the slice, and may differ from slice to slice.
    pub(crate) fn of(
        model: &'a Model,
        key: &ObjectKey,
        port: &Port,
        node: &Node,
        family: Family,
    ) -> Self {
        let mut known: BTreeMap<SocketAddr, Candidate<'a>> = BTreeMap::new();
        for slice in model.slices_of(key) {
            let same = |p: &&Port| p.name == port.name && p.protocol == port.protocol;
            for target in slice.ports.iter().filter(same) {
                let own = |e: &&SliceEndpoint| Family::of(e.addr) == family;
                for endpoint in slice.endpoints.iter().filter(own) {
                    let local = endpoint.node_name.as_deref() == Some(node.name.as_str());
                    let new = Candidate { endpoint, local };
                    let addr = SocketAddr::new(endpoint.addr, target.port);
                    let entry = known.entry(addr).or_insert(new);
                    if new.rank() > entry.rank() {
                        *entry = new;
                    }
                }
            }
        }
        Self(known)
    }

    fn select(&self, admits: impl Fn(&Candidate<'_>) -> bool) -> Vec<Endpoint> {
        let chosen = self.0.iter().filter(|(_, candidate)| admits(candidate));
        let chosen = chosen.map(|(&addr, candidate)| Endpoint {
            addr,
            local: candidate.local,
        });
        let mut chosen: Vec<Endpoint> = chosen.collect();
        // There are as many of these as Services.
        chosen.shrink_to_fit();
        chosen
    }

    /// Ready endpoints of all nodes that the topology hints leave; when no
    /// endpoint is ready, those which still serve while they terminate, because
    /// a late answer is better than none.
    pub(super) fn cluster(&self, node: &Node) -> Vec<Endpoint> {
        let topology = self.topology(node);
        let ready = self.select(|c| c.ready() && topology.admits(c.endpoint));
        if ready.is_empty() {
            return self.select(|c: &Candidate<'_>| c.leaving());
        }
        ready
    }

    /// The same of this node alone, whatever the hints.
    pub(super) fn local(&self) -> Vec<Endpoint> {
        let ready = self.select(|c| c.local && c.ready());
        if ready.is_empty() {
            return self.select(|c| c.local && c.leaving());
        }
        ready
    }

    /// All that answer, on any node.
    pub(super) fn serving(&self) -> Vec<SocketAddr> {
        let serving = |c: &Candidate<'_>| c.ready() || c.endpoint.conditions.serving;
        let serving = self.0.iter().filter(|(_, c)| serving(c));
        serving.map(|(&addr, _)| addr).collect()
    }

    /// Addresses of endpoints that new clients may meet and that no node is named for.
    pub(super) fn unplaced(&self) -> Vec<IpAddr> {
        let may_answer = |c: &Candidate<'_>| c.ready() || c.leaving();
        let chosen = self.0.iter().filter(|(_, c)| may_answer(c));
        let unplaced = chosen.filter(|(_, c)| c.endpoint.node_name.is_none());
        let mut unplaced: Vec<IpAddr> = unplaced.map(|(addr, _)| addr.ip()).collect();
        // Sorted by address and port already.
        unplaced.dedup();
        unplaced
    }

    /// Addresses of this node's ready endpoints.
    pub(super) fn local_ready(&self) -> impl Iterator<Item = IpAddr> {
        let ready = self.0.iter().filter(|(_, c)| c.local && c.ready());
        ready.map(|(addr, _)| addr.ip())
    }

    /// The narrowest hint that every ready endpoint carries and that leaves some
    /// endpoint for this node. Hints decide, not where an endpoint is.
    fn topology<'n>(&self, node: &'n Node) -> Topology<'n> {
        let ready = || self.0.values().filter(|c| c.ready()).map(|c| c.endpoint);
        let zone = node.zone.as_deref().filter(|zone| !zone.is_empty());
        let modes = [Some(Topology::Node(&node.name)), zone.map(Topology::Zone)];
        let applies = |mode: &Topology<'_>| {
            ready().all(|e| !mode.hints(e).is_empty()) && ready().any(|e| mode.admits(e))
        };
        let mut modes = modes.into_iter().flatten();
        modes.find(applies).unwrap_or(Topology::Off)
    }
}

/// Whose endpoints this node's clients should use.
#[derive(Clone, Copy)]
enum Topology<'n> {
    Off,
    Node(&'n str),
    Zone(&'n str),
}

impl Topology<'_> {
    fn hints<'e>(&self, endpoint: &'e SliceEndpoint) -> &'e [String] {
        match self {
            Self::Off => &[],
            Self::Node(_) => endpoint.for_nodes(),
            Self::Zone(_) => endpoint.for_zones(),
        }
    }

    fn admits(&self, endpoint: &SliceEndpoint) -> bool {
        match self {
            Self::Off => true,
            Self::Node(name) | Self::Zone(name) => {
                self.hints(endpoint).iter().any(|hint| hint == name)
            }
        }
    }
}
