//! The command line, parsed into types.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnetwork::IpNetwork;
use seaway_podnet::Settings;

use crate::config::{Config, PodNetworkConfig, ServiceProxy, ServicesConfig, UpkeepConfig};
use crate::install::Installed;

mod ask;
mod doubts;
mod file;
mod install;
mod network;
pub(crate) mod parse;
mod services;
#[cfg(test)]
mod tests;
mod tuning;
mod upkeep;

pub use ask::{ExplainArgs, Output, StatusArgs};
pub use file::Given;
pub use install::{HostConfigArgs, InstallArgs};
pub use network::NetworkArgs;
pub use services::{DetectLocalMode, NodePortAddress, ServicesArgs};
pub use tuning::TuningArgs;
pub use upkeep::UpkeepArgs;

/// The node's service proxy and pod network.
#[derive(Debug, Parser)]
#[command(name = "seaway-proxy", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Follow the API server and keep this node's kernel in agreement with it
    Run(Box<RunArgs>),
    /// Put the CNI plugin where the container runtime looks for it: an init container's job
    Install(Box<InstallArgs>),
    /// Say who answers at an address, why, and whether the kernel agrees
    ///
    /// Exit status: 0 if the kernel is as it should be, 1 if not, 64 for bad usage, 69 if that
    /// cannot be found out.
    Explain(Box<ExplainArgs>),
    /// Say whether the daemon has brought everything into the kernel
    ///
    /// Exit status: 0 if it has, 1 if not or if no daemon runs, 64 for bad usage, 69 if that
    /// cannot be found out.
    Status(Box<StatusArgs>),
    /// Once the daemon has ended, remove everything of ours: CNI conf, routes, rules, BPF objects
    Cleanup(Box<CleanupArgs>),
}

/// `cleanup`.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    /// Where things are kept
    #[command(flatten)]
    pub paths: PathArgs,
    /// Remove the CNI plugin from here, too, if no pod needs it; it stays if this is not given
    #[arg(long, env = "SEAWAY_CNI_BIN_DIR", value_parser = absolute, value_name = "DIR")]
    pub cni_bin_dir: Option<PathBuf>,
    /// Where the node's network daemons look for settings
    #[command(flatten)]
    pub host: HostConfigArgs,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A KubeProxyConfiguration, in YAML or JSON
    ///
    /// Flags and environment variables go before what it says.
    #[arg(long, env = "SEAWAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which flags somebody has given
    #[arg(skip)]
    pub given: Given,
    /// Kubeconfig file; the pod's service account if not given
    #[arg(long, env = "SEAWAY_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server, instead of the one of kubeconfig or service account, of which
    /// one is wanted all the same for the credentials
    ///
    /// In a DaemonSet the service account's URL is a ClusterIP, which nobody serves before we do.
    #[arg(long, env = "SEAWAY_API_SERVER", value_name = "URL")]
    pub api_server: Option<String>,
    /// Name of this node's Node object; the host name if not given
    #[arg(
        long,
        visible_alias = "hostname-override",
        env = "SEAWAY_NODE_NAME",
        value_name = "NAME",
        value_parser = node_name
    )]
    pub node_name: Option<String>,
    /// Data plane for Services
    #[arg(long, env = "SEAWAY_SERVICE_PROXY", value_enum, default_value = "ebpf")]
    pub service_proxy: ServiceProxy,
    /// Whether routes, masquerade and the CNI conf are ours
    #[arg(long, env = "SEAWAY_POD_NETWORK", value_enum, default_value = "on")]
    pub pod_network: Switch,
    /// Pod addresses of the whole cluster, of both families in dual-stack
    #[arg(
        long,
        env = "SEAWAY_CLUSTER_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = cluster_cidr
    )]
    pub cluster_cidr: Vec<IpNetwork>,
    /// This node's address for Services, in place of the Node object's; it is not listened on
    ///
    /// One of IPv6, :: included, makes the two addresses below IPv6 if they are not given.
    #[arg(long, env = "SEAWAY_BIND_ADDRESS", value_name = "ADDRESS")]
    pub bind_address: Option<IpAddr>,
    /// Where /healthz and /livez are served; empty for nowhere
    ///
    /// 0.0.0.0 and :: mean any address of both families, here and below; without a port it is
    /// that of the default.
    #[arg(
        long,
        env = "SEAWAY_HEALTHZ_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:10256",
        value_parser = healthz_bind
    )]
    pub healthz_bind_address: Bind,
    /// Where /metrics is served; empty for nowhere
    #[arg(
        long,
        env = "SEAWAY_METRICS_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:10249",
        value_parser = metrics_bind
    )]
    pub metrics_bind_address: Bind,
    /// How pods reach other nodes and the world
    #[command(flatten)]
    pub network: NetworkArgs,
    /// How Services are served
    #[command(flatten)]
    pub services: ServicesArgs,
    /// Timing and conntrack
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// How the CNI plugin is called
    #[command(flatten)]
    pub upkeep: UpkeepArgs,
    /// Where things are kept
    #[command(flatten)]
    pub paths: PathArgs,
}

/// Where things are kept; the same for every verb.
#[derive(Clone, Debug, Args)]
pub struct PathArgs {
    /// cgroup2 directory whose processes see Services; the root of cgroup2 if not given
    #[arg(long, env = "SEAWAY_CGROUP_ROOT", value_name = "DIR")]
    pub cgroup_root: Option<PathBuf>,
    /// Directory for our BPF objects, on a bpffs
    #[arg(
        long,
        env = "SEAWAY_BPFFS_DIR",
        value_name = "DIR",
        value_parser = absolute,
        default_value = "/sys/fs/bpf/seaway/v1"
    )]
    pub bpffs_dir: PathBuf,
    /// State that does not outlive a boot
    #[arg(
        long,
        env = "SEAWAY_RUN_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/run/seaway"
    )]
    pub run_dir: PathBuf,
    /// Where the container runtime looks for CNI confs
    #[arg(
        long,
        env = "SEAWAY_CNI_CONF_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/etc/cni/net.d"
    )]
    pub cni_conf_dir: PathBuf,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// An address to listen on; the empty word means nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind(Option<SocketAddr>);

/// Flags that are fine one by one and wrong together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// Without it every packet between nodes would be masqueraded.
    #[error("--pod-network=on wants --cluster-cidr, the range of all pod addresses of the cluster")]
    NoClusterCidr,
    /// A node has one address for others in each family.
    #[error("--node-ip: {0} and {1} are of one family, of which one is wanted")]
    NodeIpsOfOneFamily(IpAddr, IpAddr),
    /// The kernel switches IPv6 off on such a link.
    #[error("--mtu {0}: IPv6 needs 1280, and --cluster-cidr has {1}")]
    MtuBelowIpv6(u32, IpNetwork),
    /// Neither half is asked for.
    #[error("--service-proxy=off with --pod-network=off leaves nothing to do")]
    NothingToDo,
    /// A way of detection without what it needs.
    #[error("--detect-local-mode={mode} wants {flag}")]
    NoInterface {
        /// The way.
        mode: &'static str,
        /// What is not given.
        flag: &'static str,
    },
    /// The word does not go with anything else.
    #[error("--nodeport-addresses: primary cannot be combined with other values")]
    PrimaryAndMore,
    /// A pause must be able to end, and the shortest one is no longer than the longest.
    #[error("--iptables-sync-period {0:?}: zero, or shorter than --iptables-min-sync-period")]
    Periods(Duration),
    /// The host name cannot serve as a node name.
    #[error("--node-name is not given and the host name {0:?} is not usable")]
    NoNodeName(String),
}

impl RunArgs {
    /// The run that these flags mean; `host_name` stands in for `--node-name`.
    pub fn config(&self, host_name: &str) -> Result<Config, BadConfig> {
        let pod_network = match self.pod_network {
            Switch::Off => None,
            Switch::On => Some(PodNetworkConfig {
                settings: self.network.settings(&self.cluster_cidr)?,
                ..self.paths.pod_network()
            }),
        };
        if pod_network.is_none() && self.service_proxy == ServiceProxy::Off {
            return Err(BadConfig::NothingToDo);
        }
        let host_name = as_node_name(host_name);
        let node_name = self.node_name.clone().unwrap_or(host_name);
        if !is_dns_subdomain(&node_name) {
            return Err(BadConfig::NoNodeName(node_name));
        }
        Ok(Config {
            node_name,
            service_proxy: self.service_proxy,
            services: ServicesConfig {
                masquerade_bit: self.tuning.iptables_masquerade_bit,
                node_address: self.node_address(),
                sync: self.tuning.sync()?,
                conntrack: self.tuning.conntrack(),
                ..self
                    .services
                    .config(pod_network.is_some(), &self.cluster_cidr)?
            },
            pod_network,
            upkeep: self.upkeep.config(),
            healthz_bind: self.healthz_bind(),
            metrics_bind: self.metrics_bind(),
            bind_hard_fail: self.tuning.bind_address_hard_fail,
            ..self.paths.config()
        })
    }
}

impl CleanupArgs {
    /// What `install` has left.
    pub fn installed(&self) -> Installed {
        Installed {
            cni_bin_dir: self.cni_bin_dir.clone(),
            cni_conf_dir: self.paths.cni_conf_dir.clone(),
            run_dir: self.paths.run_dir.clone(),
            host: self.host.config(),
        }
    }
}

impl PathArgs {
    /// A configuration that knows only where things are: what `cleanup` needs.
    pub fn config(&self) -> Config {
        Config {
            node_name: String::new(),
            service_proxy: ServiceProxy::Off,
            services: ServicesConfig::default(),
            pod_network: Some(self.pod_network()),
            cgroup_root: self.cgroup_root.clone(),
            run_dir: self.run_dir.clone(),
            bpffs_dir: self.bpffs_dir.clone(),
            upkeep: UpkeepConfig::default(),
            healthz_bind: None,
            metrics_bind: None,
            bind_hard_fail: false,
        }
    }

    fn pod_network(&self) -> PodNetworkConfig {
        PodNetworkConfig {
            settings: Settings::default(),
            cni_conf_dir: self.cni_conf_dir.clone(),
            run_dir: self.run_dir.clone(),
        }
    }
}

pub(crate) fn node_name(value: &str) -> Result<String, String> {
    let name = as_node_name(value);
    if is_dns_subdomain(&name) {
        Ok(name)
    } else {
        Err("no Node has such a name; expected a DNS subdomain, such as node-1".to_owned())
    }
}

/// kube-proxy and kubelet both trim and lower such names, so Nodes are named like that.
fn as_node_name(value: &str) -> String {
    value.trim().to_lowercase()
}

/// RFC 1123 as Kubernetes reads it: `apimachinery/pkg/util/validation`.
fn is_dns_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(known)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Paths end up in files that others read from elsewhere.
fn absolute(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("not an absolute path".to_owned())
    }
}

fn healthz_bind(value: &str) -> Result<Bind, String> {
    bind(value, parse::HEALTHZ_PORT)
}

fn metrics_bind(value: &str) -> Result<Bind, String> {
    bind(value, parse::METRICS_PORT)
}

fn bind(value: &str, port: u16) -> Result<Bind, String> {
    if value.is_empty() {
        return Ok(Bind(None));
    }
    parse::listen(value, port).map(|addr| Bind(Some(addr)))
}

pub(crate) fn cluster_cidr(value: &str) -> Result<IpNetwork, String> {
    let cidr = network(value)?;
    if cidr.prefix() == 0 {
        return Err("the whole address family cannot be pod addresses".to_owned());
    }
    Ok(cidr)
}

/// Host bits do not count.
fn network(value: &str) -> Result<IpNetwork, String> {
    let cidr: IpNetwork = value
        .parse()
        .map_err(|e| format!("{e}; expected a range, such as 10.244.0.0/16"))?;
    IpNetwork::new(cidr.network(), cidr.prefix()).map_err(|e| e.to_string())
}
