//! Who answers a new connection: the policy table, in one place.
//!
//! | frontend, policy | pod | the node itself | anybody else |
//! |---|---|---|---|
//! | clusterIP, Cluster | cluster set | cluster set, masqueraded | cluster set, masqueraded |
//! | clusterIP, Local | local set | local set, masqueraded | local set, masqueraded |
//! | others, Cluster | cluster set, masqueraded | likewise | likewise |
//! | others, Local | cluster set | cluster set, masqueraded | **local set** |
//!
//! To a clusterIP the masquerade of the last two columns presumes that pods can
//! be told from others ([`LocalSources`](super::LocalSources)); without that
//! nobody is masqueraded, and pods are in the last column. `masquerade_all` adds
//! pods to it.
//!
//! A set is empty: refused if the Service has no usable endpoint at all;
//! silently dropped if only this node has none, because somebody else would
//! answer and the client may try there again.

use super::{
    Endpoint, FamilyState, Frontend, FrontendKind, LocalSources, ServicePort, TrafficPolicy,
};

/// What a client is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A pod, by the family's [`LocalSources`](super::LocalSources). This comes
    /// first: an address of the node that lies in the pods' network is a pod's.
    Pod,
    /// The source is an address of this node.
    Host,
    /// Anybody else, and pods if nothing tells them from others.
    Outside,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// One of these answers, each with the same probability.
    Answer {
        /// Not empty.
        endpoints: &'a [Endpoint],
        /// Whether the endpoint sees the node as the client. A connection from
        /// an endpoint to itself is masqueraded in any case.
        masquerade: bool,
    },
    /// ICMP port unreachable, which a TCP client sees as connection refused.
    Refuse,
    /// Nothing answers.
    Drop,
}

impl FamilyState {
    /// What happens to a new connection from `source` to `frontend` of `port`.
    /// Source ranges are not looked at here: see
    /// [`ServicePort::source_ranges`].
    pub fn verdict<'a>(
        &self,
        port: &'a ServicePort,
        frontend: &Frontend,
        source: Source,
    ) -> Verdict<'a> {
        let (policy, masquerade) = match (frontend.kind, port.external) {
            (FrontendKind::ClusterIp, _) => (port.internal, self.masquerades_internal(source)),
            (_, TrafficPolicy::Cluster) => (TrafficPolicy::Cluster, true),
            // The short circuit: what starts on this node has not been sent
            // here by a load balancer that minds where endpoints are.
            (_, TrafficPolicy::Local) => match source {
                Source::Pod => (TrafficPolicy::Cluster, false),
                Source::Host => (TrafficPolicy::Cluster, true),
                Source::Outside => (TrafficPolicy::Local, false),
            },
        };
        if port.cluster.is_empty() {
            return Verdict::Refuse;
        }
        let endpoints = match policy {
            TrafficPolicy::Cluster => &port.cluster,
            TrafficPolicy::Local => &port.local,
        };
        if endpoints.is_empty() {
            return Verdict::Drop;
        }
        Verdict::Answer {
            endpoints,
            masquerade,
        }
    }

    fn masquerades_internal(&self, source: Source) -> bool {
        let told_apart = self.local_sources != LocalSources::Unknown;
        self.masquerade_all || (told_apart && source != Source::Pod)
    }
}
