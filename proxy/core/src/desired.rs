//! What the kernel should do, in terms every data plane understands.
//!
//! ```text
//! DesiredState ─┬─ v4: FamilyState ─┬─ services: name → ServicePort
//!               └─ v6: FamilyState  ├─ health_checks
//!                                   └─ node-wide: node_ports, local_sources, masquerade_all
//! ```
//!
//! The two families know nothing of each other: a Service that has no address in
//! one does not exist there. Which endpoints answer whom is decided here for all
//! backends, by [`FamilyState::verdict`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnetwork::IpNetwork;

use crate::skipped::ObjectKey;

mod verdict;

pub use verdict::{Source, Verdict};

/// Transport protocol of a Service port.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// Internet protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// Both, in the order of everything that is rendered.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Names one port of one Service; shown as `namespace/name:port`.
///
/// The port's name is empty for the only port of a single-port Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortName {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the port inside the Service; may be empty.
    pub port: String,
}

impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)?;
        if self.port.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.port)
    }
}

/// How clients come to a frontend; decides which policies apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// `spec.clusterIPs`: internalTrafficPolicy applies.
    ClusterIp,
    /// `status.loadBalancer.ingress[].ip`: externalTrafficPolicy and source ranges apply.
    LoadBalancer,
    /// `spec.externalIPs`: externalTrafficPolicy applies.
    ExternalIp,
    /// `spec.ports[].nodePort` on the addresses of [`FamilyState::node_ports`]:
    /// externalTrafficPolicy applies.
    NodePort,
}

impl fmt::Display for FrontendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIp => "clusterIP",
            Self::LoadBalancer => "load balancer IP",
            Self::ExternalIp => "external IP",
            Self::NodePort => "NodePort",
        })
    }
}

/// One address and port that a Service answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The virtual address; of a NodePort the family's unspecified address.
    pub addr: IpAddr,
    /// The Service's port (or NodePort), host byte order.
    pub port: u16,
    /// The Service port's protocol.
    pub protocol: Protocol,
    /// How clients come to it.
    pub kind: FrontendKind,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FrontendKind::NodePort => write!(f, "NodePort {}/{}", self.port, self.protocol),
            _ => write!(
                f,
                "{}/{}",
                SocketAddr::new(self.addr, self.port),
                self.protocol
            ),
        }
    }
}

/// A pod's address and port that may answer for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Where the pod listens.
    pub addr: SocketAddr,
    /// Whether the pod runs on this node (by `nodeName`, never by address).
    pub local: bool,
}

/// Which endpoints a policy admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// Those of all nodes.
    #[default]
    Cluster,
    /// Those of the node that the packet has come to.
    Local,
}

/// One Service port with the endpoints that may answer it now, in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Sorted, without duplicates; at least one, all of one protocol.
    pub frontends: Vec<Frontend>,
    /// Endpoints for policy Cluster, sorted, without duplicates: after
    /// readiness, terminating fallback and topology hints. Empty means that the
    /// Service has no usable endpoint on any node.
    pub cluster: Vec<Endpoint>,
    /// Endpoints for policy Local, likewise, without topology. Not always a part
    /// of `cluster`: hints may exclude a local one, and the fallback to
    /// terminating endpoints is decided for either set on its own.
    pub local: Vec<Endpoint>,
    /// Where flows of a protocol without connections (UDP, and SCTP for its
    /// reused ports) may go on: every endpoint that serves, whatever policies and
    /// hints say of new ones. Sorted, without duplicates; empty for TCP.
    pub serving: Vec<SocketAddr>,
    /// Addresses of endpoints that no node is named for, sorted, without
    /// duplicates. They are nobody's local endpoints, but may run here all the
    /// same, and then be their own clients.
    pub unplaced: Vec<IpAddr>,
    /// For clusterIPs.
    pub internal: TrafficPolicy,
    /// For everything else.
    pub external: TrafficPolicy,
    /// Who may use load balancer IPs; `None`: everybody. An empty list admits
    /// nobody. Sorted, without duplicates.
    pub source_ranges: Option<Vec<IpNetwork>>,
    /// A client (source address) that comes again within this time after its
    /// last new connection meets the same endpoint, on whatever frontend, as
    /// long as that endpoint may answer there. Whole seconds, 1 to 86,400.
    pub affinity: Option<Duration>,
}

impl ServicePort {
    /// The endpoints that any frontend leads to, sorted, without duplicates.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut all = Vec::new();
        if self.uses(TrafficPolicy::Cluster) {
            all.extend_from_slice(&self.cluster);
        }
        if self.uses(TrafficPolicy::Local) {
            all.extend_from_slice(&self.local);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Addresses of endpoints that may run on this node, each perhaps several
    /// times: whoever of them picks itself is masqueraded, or it would answer
    /// itself directly.
    pub fn own_clients(&self) -> impl Iterator<Item = IpAddr> {
        let local = self.endpoints().into_iter().filter(|e| e.local);
        let local = local.map(|endpoint| endpoint.addr.ip());
        local.chain(self.unplaced.iter().copied())
    }

    /// Whether some packet is answered by this policy's endpoints. With
    /// externalTrafficPolicy Local that is both: pods and the node itself may
    /// use every endpoint ([`FamilyState::verdict`]).
    pub fn uses(&self, policy: TrafficPolicy) -> bool {
        self.frontends.iter().any(|frontend| match frontend.kind {
            FrontendKind::ClusterIp => self.internal == policy,
            _ => policy == TrafficPolicy::Cluster || self.external == TrafficPolicy::Local,
        })
    }
}

/// What tells a pod of this node (or of the cluster) from other sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalSources {
    /// Nothing does: no client of a clusterIP is masqueraded, and no pod is
    /// spared externalTrafficPolicy Local.
    #[default]
    Unknown,
    /// The source address. Sorted, without duplicates, at least one.
    Networks(Vec<IpNetwork>),
    /// The device that the packet came by.
    Interface(String),
    /// The beginning of that device's name.
    InterfacePrefix(String),
}

/// On which of the node's own addresses NodePorts are served. Addresses that the
/// node gets later count from that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePortAddresses {
    /// Only addresses in these; `None`: all. Sorted, without duplicates. An
    /// empty list serves none.
    pub networks: Option<Vec<IpNetwork>>,
    /// Whether 127.0.0.0/8 counts. Always false for IPv6.
    pub localhost: bool,
}

impl NodePortAddresses {
    /// Whether NodePorts are served on `addr`, given that it is the node's.
    pub fn serves(&self, addr: IpAddr) -> bool {
        if addr.is_loopback() && !self.localhost {
            return false;
        }
        let networks = self.networks.as_ref();
        networks.is_none_or(|networks| networks.iter().any(|network| network.contains(addr)))
    }
}

/// A `spec.healthCheckNodePort`: what a load balancer asks about this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// TCP port to listen on.
    pub port: u16,
    /// Different addresses of ready endpoints on this node, over all ports of
    /// the Service. Terminating ones do not count, even while they serve: the
    /// load balancer shall look elsewhere.
    pub endpoints: usize,
}

/// Everything that the service proxy wants from the kernel in one family.
///
/// Two Service ports never share a frontend's address, port and protocol:
/// compile gives a contested one to one of them and reports the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyState {
    /// By name, so that whatever is rendered from it is in a fixed order.
    pub services: BTreeMap<ServicePortName, ServicePort>,
    /// By Service.
    pub health_checks: BTreeMap<ObjectKey, HealthCheck>,
    /// Where NodePorts are served.
    pub node_ports: NodePortAddresses,
    /// What counts as a pod.
    pub local_sources: LocalSources,
    /// Whether every client of a clusterIP is masqueraded.
    pub masquerade_all: bool,
}

/// Everything that the service proxy wants from the kernel of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// The IPv4 half.
    pub v4: FamilyState,
    /// The IPv6 half.
    pub v6: FamilyState,
}

impl DesiredState {
    /// One half.
    pub fn family(&self, family: Family) -> &FamilyState {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// One half, to change it.
    pub fn family_mut(&mut self, family: Family) -> &mut FamilyState {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Service ports that are served in at least one family.
    pub fn service_ports(&self) -> usize {
        let only_v6 = self.v6.services.keys();
        let only_v6 = only_v6.filter(|name| !self.v4.services.contains_key(*name));
        self.v4.services.len() + only_v6.count()
    }
}
