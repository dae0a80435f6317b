//! Flags of `run`, and the run that they mean.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use ipnetwork::IpNetwork;

use super::{
    BadConfig, Given, NetworkArgs, PathArgs, ServicesArgs, Switch, TuningArgs, UpkeepArgs, parse,
};
use crate::config::{Config, PodNetworkConfig, ServiceProxy, ServicesConfig};

/// `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// A KubeProxyConfiguration, in YAML or JSON
    ///
    /// Flags and environment variables go before what it says. When it says something else the
    /// process ends with status 1, for its supervisor to start it again.
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
        value_parser = parse::node_name
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
        value_parser = parse::cluster_cidr
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

/// An address to listen on; the empty word means nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind(pub(super) Option<SocketAddr>);

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
        let host_name = parse::as_node_name(host_name);
        let node_name = self.node_name.clone().unwrap_or(host_name);
        if !parse::is_dns_subdomain(&node_name) {
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
