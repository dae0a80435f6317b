//! What compile must know besides Services and EndpointSlices.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

use crate::desired::{Family, LocalSources, NodePortAddresses};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// This node, and what its operator has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`; endpoints with this `nodeName` are local.
    pub name: String,
    /// Label `topology.kubernetes.io/zone`; an empty one is as good as none.
    pub zone: Option<String>,
    /// The primary address of each family that has one.
    pub addresses: Vec<IpAddr>,
    /// How pods are told from others.
    pub detect: Detect,
    /// Whether all clients of clusterIPs are masqueraded.
    pub masquerade_all: bool,
    /// Where NodePorts are served.
    pub node_ports: NodePorts,
    /// Whether NodePorts are served on 127.0.0.1 too, as far as `node_ports`
    /// admits it.
    pub localhost_node_ports: bool,
    /// Whether `spec.externalIPs` are served.
    pub external_ips: bool,
}

/// How pods are told from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detect {
    /// Not at all.
    #[default]
    Off,
    /// By source address: clusterCIDR, or this node's podCIDRs. A family
    /// without a network has no detection.
    Networks(Vec<IpNetwork>),
    /// By the device's name.
    Interface(String),
    /// By the beginning of the device's name.
    InterfacePrefix(String),
}

/// Which addresses of the node serve NodePorts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePorts {
    /// All.
    #[default]
    All,
    /// [`Node::addresses`]; none of a family that has no address there.
    Primary,
    /// Those in these networks; none of a family that has no network here.
    Networks(Vec<IpNetwork>),
}

impl Node {
    /// A node with the default settings; no zone and no addresses are known.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            zone: None,
            addresses: Vec::new(),
            detect: Detect::Off,
            masquerade_all: false,
            node_ports: NodePorts::All,
            localhost_node_ports: true,
            external_ips: true,
        }
    }

    pub(crate) fn local_sources(&self, family: Family) -> LocalSources {
        match &self.detect {
            Detect::Off => LocalSources::Unknown,
            Detect::Interface(name) => LocalSources::Interface(name.clone()),
            Detect::InterfacePrefix(prefix) => LocalSources::InterfacePrefix(prefix.clone()),
            Detect::Networks(networks) => match of_family(networks, family) {
                own if own.is_empty() => LocalSources::Unknown,
                own => LocalSources::Networks(own),
            },
        }
    }

    pub(crate) fn node_port_addresses(&self, family: Family) -> NodePortAddresses {
        let networks = match &self.node_ports {
            NodePorts::All => None,
            NodePorts::Primary => {
                let hosts: Vec<_> = self.addresses.iter().map(|addr| (*addr).into()).collect();
                Some(of_family(&hosts, family))
            }
            NodePorts::Networks(networks) => Some(of_family(networks, family)),
        };
        let everything = |networks: &Vec<IpNetwork>| networks.iter().any(|n| n.prefix() == 0);
        let networks = networks.filter(|networks| !everything(networks));
        let admitted = networks
            .as_ref()
            .is_none_or(|networks| networks.iter().any(|n| n.contains(LOCALHOST)));
        NodePortAddresses {
            networks,
            localhost: self.localhost_node_ports && family == Family::V4 && admitted,
        }
    }
}

fn of_family(networks: &[IpNetwork], family: Family) -> Vec<IpNetwork> {
    let own = networks.iter().filter(|n| Family::of(n.ip()) == family);
    let mut own: Vec<IpNetwork> = own.copied().collect();
    own.sort_unstable();
    own.dedup();
    own
}
