//! The command line, parsed into types.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnetwork::{IpNetwork, Ipv4Network};

use crate::config::{Config, PodNetworkConfig, ServiceProxy, ServicesConfig};

mod services;
#[cfg(test)]
mod tests;

pub use services::ServicesArgs;

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
    /// Remove everything of ours from this node: CNI conf, routes, rules, BPF objects
    Cleanup(PathArgs),
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Kubeconfig file; the pod's service account if not given
    #[arg(long, env = "SEAWAY_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server, instead of the one of kubeconfig or service account
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
    /// Pod addresses of the whole cluster; an IPv4 range is wanted for the pod network
    #[arg(
        long,
        env = "SEAWAY_CLUSTER_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = cluster_cidr
    )]
    pub cluster_cidr: Vec<IpNetwork>,
    /// MTU of pod interfaces in bytes; the uplink's if not given
    #[arg(long, env = "SEAWAY_MTU", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    pub mtu: Option<u32>,
    /// Where /healthz and /livez are served; empty for nowhere
    #[arg(
        long,
        env = "SEAWAY_HEALTHZ_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:10256",
        value_parser = bind_address
    )]
    pub healthz_bind_address: Bind,
    /// Where /metrics is served; empty for nowhere
    #[arg(
        long,
        env = "SEAWAY_METRICS_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:10249",
        value_parser = bind_address
    )]
    pub metrics_bind_address: Bind,
    /// How Services are served
    #[command(flatten)]
    pub services: ServicesArgs,
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
    #[error(
        "--pod-network=on wants --cluster-cidr, the IPv4 range of all pod addresses of the cluster"
    )]
    NoClusterCidr,
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
    /// The host name cannot serve as a node name.
    #[error("--node-name is not given and the host name {0:?} is not usable")]
    NoNodeName(String),
}

impl RunArgs {
    /// The run that these flags mean; `host_name` stands in for `--node-name`.
    pub fn config(&self, host_name: &str) -> Result<Config, BadConfig> {
        let pod_network = match self.pod_network {
            Switch::Off => None,
            Switch::On if self.cluster_cidrs_v4().is_empty() => {
                return Err(BadConfig::NoClusterCidr);
            }
            Switch::On => Some(PodNetworkConfig {
                cluster_cidrs: self.cluster_cidrs_v4(),
                mtu: self.mtu,
                ..self.paths.pod_network()
            }),
        };
        if pod_network.is_none() && self.service_proxy == ServiceProxy::Off {
            return Err(BadConfig::NothingToDo);
        }
        // kube-proxy and kubelet both trim and lower the host name, so Nodes are named like that.
        let host_name = host_name.trim().to_lowercase();
        let node_name = self.node_name.clone().unwrap_or(host_name);
        if !is_dns_subdomain(&node_name) {
            return Err(BadConfig::NoNodeName(node_name));
        }
        Ok(Config {
            node_name,
            service_proxy: self.service_proxy,
            services: self
                .services
                .config(pod_network.is_some(), &self.cluster_cidr)?,
            pod_network,
            healthz_bind: self.healthz_bind_address.0,
            metrics_bind: self.metrics_bind_address.0,
            ..self.paths.config()
        })
    }

    fn cluster_cidrs_v4(&self) -> Vec<Ipv4Network> {
        let v4 = self.cluster_cidr.iter().filter_map(|cidr| match cidr {
            IpNetwork::V4(cidr) => Some(*cidr),
            IpNetwork::V6(_) => None,
        });
        v4.collect()
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
            healthz_bind: None,
            metrics_bind: None,
        }
    }

    fn pod_network(&self) -> PodNetworkConfig {
        PodNetworkConfig {
            cluster_cidrs: Vec::new(),
            cni_conf_dir: self.cni_conf_dir.clone(),
            run_dir: self.run_dir.clone(),
            mtu: None,
        }
    }
}

fn node_name(value: &str) -> Result<String, String> {
    if is_dns_subdomain(value) {
        Ok(value.to_owned())
    } else {
        Err("no Node has such a name; expected a DNS subdomain, such as node-1".to_owned())
    }
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

fn bind_address(value: &str) -> Result<Bind, String> {
    if value.is_empty() {
        return Ok(Bind(None));
    }
    value
        .parse()
        .map(|addr| Bind(Some(addr)))
        .map_err(|e| format!("{e}; expected ADDRESS:PORT, such as 127.0.0.1:10256"))
}

fn cluster_cidr(value: &str) -> Result<IpNetwork, String> {
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
