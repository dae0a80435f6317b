//! What the kernel should do, in terms every data plane understands.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Transport protocol of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
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
    /// `spec.clusterIPs`: reachable from pods and nodes.
    ClusterIp,
}

/// One address and port that a Service answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The virtual address.
    pub addr: IpAddr,
    /// The Service's port, host byte order.
    pub port: u16,
    /// The Service port's protocol.
    pub protocol: Protocol,
    /// How clients come to it.
    pub kind: FrontendKind,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            SocketAddr::new(self.addr, self.port),
            self.protocol
        )
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

/// One Service port with the endpoints that may answer it now.
///
/// An endpoint answers for the frontends of its own address family only. A
/// frontend without an endpoint means: refuse (ICMP port unreachable, which a
/// TCP client sees as connection refused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Sorted, without duplicates.
    pub frontends: Vec<Frontend>,
    /// Sorted, without duplicates; already filtered by readiness and policy.
    pub endpoints: Vec<Endpoint>,
}

/// Everything the service proxy wants from the kernel of this node.
///
/// Two Service ports never share a [`Frontend`]: compile gives a contested one
/// to the older Service and reports the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// By name, so that whatever is rendered from it is in a fixed order.
    pub services: BTreeMap<ServicePortName, ServicePort>,
}
