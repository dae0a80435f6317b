//! What a run is told, as plain values.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnetwork::Ipv4Network;

/// Everything that decides how the daemon behaves on this node.
#[derive(Clone, Debug)]
pub struct Config {
    /// `metadata.name` of this node's Node object.
    pub node_name: String,
    /// Which data plane serves Services.
    pub service_proxy: ServiceProxy,
    /// The pod network, unless somebody else's CNI does it.
    pub pod_network: Option<PodNetworkConfig>,
    /// cgroup2 directory whose processes see Services (eBPF); found if not given.
    pub cgroup_root: Option<PathBuf>,
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
