//! What a run is told, as plain values.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use seaway_podnet::Settings;
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
    /// How what others remove from this node is put back, and what dead pods left is removed.
    pub upkeep: UpkeepConfig,
    /// Where `/healthz` and `/livez` are served; nowhere if not given.
    pub healthz_bind: Option<SocketAddr>,
    /// Where `/metrics` is served; nowhere if not given.
    pub metrics_bind: Option<SocketAddr>,
    /// Whether it is the end if one of these two addresses cannot be had.
    pub bind_hard_fail: bool,
}

impl Config {
    /// Where all pods are, as far as this says.
    pub(crate) fn pod_ranges(&self) -> Vec<IpNetwork> {
        let network = self.pod_network.as_ref();
        match &self.services.detect {
            DetectLocal::ClusterCidrs(cidrs) if network.is_none() => cidrs.clone(),
            _ => network.map_or_else(Vec::new, |network| network.settings.cluster_cidrs.clone()),
        }
    }
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
    /// What the operator has chosen.
    pub settings: Settings,
    /// Where the container runtime looks for CNI confs.
    pub cni_conf_dir: PathBuf,
    /// Where state of this boot is kept.
    pub run_dir: PathBuf,
}

/// How the CNI plugin is called for what only it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpkeepConfig {
    /// The plugin's executable; found if not given.
    pub cni_bin: Option<PathBuf>,
    /// Between two looks for what dead pods have left, of which it takes two.
    pub sweep_interval: Duration,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        Self {
            cni_bin: None,
            sweep_interval: Duration::from_mins(1),
        }
    }
}

/// Beginning of the names of our pods' interfaces.
pub const POD_INTERFACES: &str = "sw";

/// Whether a name is one of those that the CNI plugin gives: `swp1` is none.
pub(crate) fn is_pod_interface(name: &str) -> bool {
    let hex = |c: &u8| c.is_ascii_digit() || (b'a'..=b'f').contains(c);
    name.strip_prefix(POD_INTERFACES)
        .is_some_and(|rest| rest.len() == 12 && rest.as_bytes().iter().all(hex))
}

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
    /// Whether `spec.externalIPs` are served.
    pub external_ips: bool,
    /// Which bit of a packet's mark says "masquerade this" (iptables).
    pub masquerade_bit: u8,
    /// This node's address, in place of the Node object's one of that family; comes first.
    pub node_address: Option<IpAddr>,
    /// How often the kernel is written.
    pub sync: SyncConfig,
    /// The kernel's connection tracking (iptables).
    pub conntrack: ConntrackConfig,
}

/// How often the kernel is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// The shortest pause between two rounds; ours, which depends on how long a round takes, if
    /// not given.
    pub min_period: Option<Duration>,
    /// The longest pause after a round that failed. Twice this is how long something may wait
    /// to be written on a healthy node.
    pub period: Duration,
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self {
            min_period: None,
            period: Duration::from_secs(30),
        }
    }
}

/// What kube-proxy sets of the kernel's connection tracking; zero leaves a value alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackConfig {
    /// Connections per CPU.
    pub max_per_core: u32,
    /// At least so many, unless `max_per_core` is zero.
    pub min: u32,
    /// Of an idle TCP connection; whole seconds, as the others.
    pub tcp_established_timeout: Duration,
    /// Of one that the other side has closed.
    pub tcp_close_wait_timeout: Duration,
    /// Whether TCP packets outside of the window count as good ones.
    pub tcp_be_liberal: bool,
    /// Of a UDP flow without an answer.
    pub udp_timeout: Duration,
    /// Of one with.
    pub udp_stream_timeout: Duration,
}

impl Default for ConntrackConfig {
    fn default() -> Self {
        Self {
            max_per_core: 32 * 1024,
            min: 128 * 1024,
            tcp_established_timeout: Duration::from_hours(24),
            tcp_close_wait_timeout: Duration::from_hours(1),
            tcp_be_liberal: false,
            udp_timeout: Duration::ZERO,
            udp_stream_timeout: Duration::ZERO,
        }
    }
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
            external_ips: true,
            masquerade_bit: 14,
            node_address: None,
            sync: SyncConfig::default(),
            conntrack: ConntrackConfig::default(),
        }
    }
}
