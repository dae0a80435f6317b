//! Flags about Services, with kube-proxy's names and meaning.

use clap::{ArgAction, Args, ValueEnum};
use ipnetwork::IpNetwork;
use seaway_proxy_core::node::NodePorts;

use super::BadConfig;
use super::parse::network;
use crate::config::{DetectLocal, POD_INTERFACES, ServicesConfig};

/// The kernel's limit (`IFNAMSIZ` without the NUL), less one for the `+` that
/// iptables takes for "and anything".
const PREFIX_MAX: usize = 14;

/// How Services are served.
#[derive(Clone, Debug, Args)]
pub struct ServicesArgs {
    /// How this node's pods are told from other clients
    ///
    /// By our pod interfaces if the pod network is on and this is not given, by --cluster-cidr
    /// otherwise. NodeCIDR goes by the podCIDRs of this Node.
    #[arg(long, env = "SEAWAY_DETECT_LOCAL_MODE", value_name = "MODE")]
    pub detect_local_mode: Option<DetectLocalMode>,
    /// The interface by which pods send, for BridgeInterface
    #[arg(long, env = "SEAWAY_POD_BRIDGE_INTERFACE", value_name = "NAME", value_parser = interface)]
    pub pod_bridge_interface: Option<String>,
    /// Beginning of the names of interfaces by which pods send, for InterfaceNamePrefix
    #[arg(
        long,
        env = "SEAWAY_POD_INTERFACE_NAME_PREFIX",
        value_name = "PREFIX",
        value_parser = interface
    )]
    pub pod_interface_name_prefix: Option<String>,
    /// Ranges in which addresses of this node serve NodePorts, or the word primary for the
    /// Node's own; all if not given
    #[arg(
        long,
        env = "SEAWAY_NODEPORT_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = node_port_address
    )]
    pub nodeport_addresses: Vec<NodePortAddress>,
    /// Whether NodePorts are served on 127.0.0.1, too (iptables)
    #[arg(
        long,
        env = "SEAWAY_IPTABLES_LOCALHOST_NODEPORTS",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub iptables_localhost_nodeports: bool,
    /// Whether all clients of clusterIPs are masqueraded, pods included (iptables)
    #[arg(
        long,
        env = "SEAWAY_MASQUERADE_ALL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub masquerade_all: bool,
    /// Whether the externalIPs of Services are served: kube-proxy's feature gate
    /// AllowServiceExternalIPs
    #[arg(
        long,
        env = "SEAWAY_ALLOW_SERVICE_EXTERNAL_IPS",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub allow_service_external_ips: bool,
}

/// kube-proxy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DetectLocalMode {
    /// By source address, those of all pods of the cluster.
    #[value(name = "ClusterCIDR")]
    ClusterCidr,
    /// By source address, those of this node's pods.
    #[value(name = "NodeCIDR")]
    NodeCidr,
    /// By interface.
    #[value(name = "BridgeInterface")]
    BridgeInterface,
    /// By the beginning of the interface's name.
    #[value(name = "InterfaceNamePrefix")]
    InterfaceNamePrefix,
}

/// One element of `--nodeport-addresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePortAddress {
    /// The addresses of the Node object.
    Primary,
    /// Addresses in a range.
    Network(IpNetwork),
}

impl ServicesArgs {
    /// What these flags mean, given the ones about the pod network.
    pub(super) fn config(
        &self,
        pod_network: bool,
        cluster_cidrs: &[IpNetwork],
    ) -> Result<ServicesConfig, BadConfig> {
        Ok(ServicesConfig {
            detect: self.detect(pod_network, cluster_cidrs)?,
            node_ports: self.node_ports()?,
            localhost_node_ports: self.iptables_localhost_nodeports,
            masquerade_all: self.masquerade_all,
            external_ips: self.allow_service_external_ips,
            ..ServicesConfig::default()
        })
    }

    fn detect(
        &self,
        pod_network: bool,
        cluster_cidrs: &[IpNetwork],
    ) -> Result<DetectLocal, BadConfig> {
        let wanted = |name: &Option<String>, mode, flag| {
            name.clone().ok_or(BadConfig::NoInterface { mode, flag })
        };
        Ok(match self.detect_local_mode {
            None if pod_network => DetectLocal::InterfacePrefix(POD_INTERFACES.to_owned()),
            None | Some(DetectLocalMode::ClusterCidr) => {
                DetectLocal::ClusterCidrs(cluster_cidrs.to_vec())
            }
            Some(DetectLocalMode::NodeCidr) => DetectLocal::NodeCidrs,
            Some(DetectLocalMode::BridgeInterface) => DetectLocal::Interface(wanted(
                &self.pod_bridge_interface,
                "BridgeInterface",
                "--pod-bridge-interface",
            )?),
            Some(DetectLocalMode::InterfaceNamePrefix) => DetectLocal::InterfacePrefix(wanted(
                &self.pod_interface_name_prefix,
                "InterfaceNamePrefix",
                "--pod-interface-name-prefix",
            )?),
        })
    }

    fn node_ports(&self) -> Result<NodePorts, BadConfig> {
        let mut networks = Vec::new();
        for address in &self.nodeport_addresses {
            match address {
                NodePortAddress::Network(network) => networks.push(*network),
                NodePortAddress::Primary if self.nodeport_addresses.len() == 1 => {
                    return Ok(NodePorts::Primary);
                }
                NodePortAddress::Primary => return Err(BadConfig::PrimaryAndMore),
            }
        }
        Ok(if networks.is_empty() {
            NodePorts::All
        } else {
            NodePorts::Networks(networks)
        })
    }
}

pub(crate) fn node_port_address(value: &str) -> Result<NodePortAddress, String> {
    match value {
        "primary" => Ok(NodePortAddress::Primary),
        _ => network(value).map(NodePortAddress::Network),
    }
}

/// The name becomes a word of an iptables rule.
pub(crate) fn interface(value: &str) -> Result<String, String> {
    let fits = (1..=PREFIX_MAX).contains(&value.len());
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:@-".contains(c);
    if fits && value.chars().all(plain) && !value.starts_with('-') {
        return Ok(value.to_owned());
    }
    Err(format!(
        "expected 1 to {PREFIX_MAX} letters, digits or any of _.:@- for an interface"
    ))
}
