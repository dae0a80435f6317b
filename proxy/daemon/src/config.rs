//! What a run is told, as plain values.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnetwork::{IpNetwork, Ipv4Network};
use seaway_proxy_core::node::NodePorts;

/// Everything that decides how the daemon behaves on this node.
#[derive(Clone, Debug)]
pub struct Config {
    /// `metadata.name` of this node's Node object.
    pub node_name: String,
    /// Which data plane serves Services.
    pub service_proxy: ServiceProxy,
    /// What the operator has chosen about Services.
    pub services: ServicesConfig,
    /// The pod network, unless somebody else's CNI does it.
    pub pod_network: Option<PodNetworkConfig>,
    /// cgroup2 directory whose processes see Services (eBPF); found if not given.
    pub cgroup_root: Option<PathBuf>,
    /// Where state of this boot is kept.
    pub run_dir: PathBuf,
    /// Where BPF maps and links are pinned, on a bpffs.
    pub bpffs_dir: PathBuf,
    /// Where `/healthz` and `/livez` are served; nowhere if not given.
    pub healthz_bind: Option<SocketAddr>,
    /// Where `/metrics` is served; nowhere if not given.
    pub metrics_bind: Option<SocketAddr>,
}

/// Which data plane serves Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServiceProxy {
    /// Socket-level programs.
    Ebpf,
    /// netfilter rules.
    Iptables,
    /// Somebody else's service proxy runs on this node.
    Off,
}

impl ServiceProxy {
    /// As in flags, logs and `/proxyMode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Iptables => "iptables",
            Self::Off => "off",
        }
    }
}

/// How pods reach other nodes and the world.
#[derive(Clone, Debug)]
pub struct PodNetworkConfig {
    /// All pod addresses of the cluster: destinations that are not masqueraded.
    pub cluster_cidrs: Vec<Ipv4Network>,
    /// Where the container runtime looks for CNI confs.
    pub cni_conf_dir: PathBuf,
    /// Where state of this boot is kept.
    pub run_dir: PathBuf,
    /// MTU of pod interfaces, bytes; the uplink's if not given.
    pub mtu: Option<u32>,
}

/// Beginning of the names of our pods' interfaces.
pub const POD_INTERFACES: &str = "sw";

/// What the operator has chosen about Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicesConfig {
    /// How pods are told from other clients.
    pub detect: DetectLocal,
    /// Which addresses of the node serve NodePorts.
    pub node_ports: NodePorts,
    /// Whether NodePorts are served on 127.0.0.1 (iptables).
    pub localhost_node_ports: bool,
    /// Whether all clients of clusterIPs are masqueraded (iptables).
    pub masquerade_all: bool,
}

/// How pods are told from other clients: kube-proxy's detectLocalMode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    /// By source address, those of all pods of the cluster. A family without a
    /// network has no detection.
    ClusterCidrs(Vec<IpNetwork>),
    /// By source address, the `spec.podCIDRs` of this Node.
    NodeCidrs,
    /// By the interface's name.
    Interface(String),
    /// By the beginning of the interface's name.
    InterfacePrefix(String),
}

impl Default for ServicesConfig {
    /// For a node whose pod network is ours.
    fn default() -> Self {
        Self {
            detect: DetectLocal::InterfacePrefix(POD_INTERFACES.to_owned()),
            node_ports: NodePorts::All,
            localhost_node_ports: true,
            masquerade_all: false,
        }
    }
}
