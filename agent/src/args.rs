//! The command line. Parsed here into types, turned into configuration once.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnetwork::Ipv4Network;
use seaway_agent_core::eviction::EvictionHard;

#[cfg(test)]
mod tests;

/// A slim kubelet.
#[derive(Debug, Parser)]
#[command(name = "seaway-agent", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to log: a level, or `target=level` pairs as tracing-subscriber reads them
    #[arg(long, env = "SEAWAY_LOG", default_value = "info", global = true)]
    pub log: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the pods that an API server assigns to this node
    Run(Box<RunArgs>),
    /// Run the pods of a directory of manifests, without a control plane
    Standalone(Box<StandaloneArgs>),
    /// Show what a running agent knows
    Get(GetArgs),
}

/// What both modes need.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Name of this node; the host name in lower case if not given
    #[arg(long, env = "SEAWAY_NODE_NAME", alias = "hostname-override")]
    pub node_name: Option<String>,
    /// Addresses of this node, one per family; the default route's source if not given
    #[arg(long, env = "SEAWAY_NODE_IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// The container runtime's CRI socket
    #[arg(
        long,
        env = "SEAWAY_RUNTIME_ENDPOINT",
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    pub runtime_endpoint: String,
    /// Where the agent keeps pods' volumes and its own state
    #[arg(long, env = "SEAWAY_ROOT_DIR", default_value = "/var/lib/seaway-agent")]
    pub root_dir: PathBuf,
    /// Where the runtime writes containers' logs
    #[arg(long, env = "SEAWAY_POD_LOG_DIR", default_value = "/var/log/pods")]
    pub pod_log_dir: PathBuf,
    /// Where the runtime's CNI library keeps results; unreadable ones are removed at start
    #[arg(long, env = "SEAWAY_CNI_CACHE_DIR", default_value = "/var/lib/cni")]
    pub cni_cache_dir: PathBuf,
    /// The cgroup, below every hierarchy's root, under which pods are put
    #[arg(long, env = "SEAWAY_CGROUP_ROOT", default_value = "/")]
    pub cgroup_root: String,
    /// Where state that does not outlive a boot is kept, and the socket that `get` reads
    #[arg(long, env = "SEAWAY_RUN_DIR", default_value = "/run/seaway")]
    pub run_dir: PathBuf,
    /// DNS servers of pods with dnsPolicy ClusterFirst
    #[arg(long, env = "SEAWAY_CLUSTER_DNS", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster
    #[arg(long, env = "SEAWAY_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How many pods this node takes
    #[arg(long, env = "SEAWAY_MAX_PODS", default_value_t = 110)]
    pub max_pods: u32,
    /// What must stay free: no pod gets it, and where there is less the Node is under pressure,
    /// so that a scheduler sends no more pods. SIGNAL<VALUE of memory.available (100Mi),
    /// nodefs.available (10%), nodefs.inodesFree (5%), with commas between; 0 turns one off, and
    /// one that is not named keeps its default
    #[arg(
        long,
        env = "SEAWAY_EVICTION_HARD",
        default_value = "",
        hide_default_value = true
    )]
    pub eviction_hard: EvictionHard,
    /// Where plain /healthz is served; `off` for nowhere
    #[arg(long, env = "SEAWAY_HEALTHZ_BIND_ADDRESS", default_value = "127.0.0.1:10248", value_parser = parse_bind)]
    pub healthz_bind_address: Bind,
}

/// `seaway-agent run`
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "flattened")]
    pub node: NodeArgs,
    /// How to reach the API server, with this node's client certificate
    #[arg(long, env = "SEAWAY_KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// Who may call the HTTPS API: certificates signed by these authorities
    #[arg(long, env = "SEAWAY_CLIENT_CA_FILE")]
    pub client_ca_file: PathBuf,
    /// Certificate of the HTTPS API; self-signed at every start if not given
    #[arg(long, env = "SEAWAY_TLS_CERT_FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the HTTPS API's certificate
    #[arg(long, env = "SEAWAY_TLS_PRIVATE_KEY_FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Address the HTTPS API listens on
    #[arg(long, env = "SEAWAY_ADDRESS", default_value = "0.0.0.0")]
    pub address: IpAddr,
    /// Port of the HTTPS API
    #[arg(long, env = "SEAWAY_PORT", default_value_t = 10250)]
    pub port: u16,
    /// Labels the Node is registered with
    #[arg(long, env = "SEAWAY_NODE_LABELS", value_delimiter = ',', value_parser = parse_label)]
    pub node_labels: Vec<(String, String)>,
}

/// `seaway-agent standalone`
#[derive(Args, Clone, Debug)]
pub struct StandaloneArgs {
    /// Directory of manifests: Pod, Service, ConfigMap, Secret; *.yaml, *.yml, *.json
    pub dir: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "flattened")]
    pub node: NodeArgs,
    /// How Services reach their endpoints
    #[arg(long, env = "SEAWAY_SERVICE_PROXY", value_enum, default_value_t = ServiceProxy::Ebpf)]
    pub service_proxy: ServiceProxy,
    /// Where pods get their addresses from
    #[arg(long, env = "SEAWAY_POD_CIDR", default_value = "10.244.0.0/24", value_parser = parse_cidr)]
    pub pod_cidr: Ipv4Network,
    /// Where Services get their addresses from
    #[arg(long, env = "SEAWAY_SERVICE_CIDR", default_value = "10.96.0.0/16", value_parser = parse_cidr)]
    pub service_cidr: Ipv4Network,
    /// What is not masqueraded on the way out; the pod CIDR if not given
    #[arg(long, env = "SEAWAY_CLUSTER_CIDR", value_delimiter = ',', value_parser = parse_cidr)]
    pub cluster_cidr: Vec<Ipv4Network>,
    /// cgroup2 directory that the proxy's socket programs are attached to; found if not given
    #[arg(long, env = "SEAWAY_PROXY_CGROUP_ROOT")]
    pub proxy_cgroup_root: Option<PathBuf>,
    /// Where the proxy pins its maps and links
    #[arg(
        long,
        env = "SEAWAY_BPFFS_DIR",
        default_value = "/sys/fs/bpf/seaway/v1"
    )]
    pub bpffs_dir: PathBuf,
    /// Where the CNI configuration is written
    #[arg(long, env = "SEAWAY_CNI_CONF_DIR", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Where the proxy serves its health; `off` for nowhere
    #[arg(long, env = "SEAWAY_PROXY_HEALTHZ_BIND_ADDRESS", default_value = "off", value_parser = parse_bind)]
    pub proxy_healthz_bind_address: Bind,
    /// Where the proxy serves its metrics; `off` for nowhere
    #[arg(long, env = "SEAWAY_PROXY_METRICS_BIND_ADDRESS", default_value = "off", value_parser = parse_bind)]
    pub proxy_metrics_bind_address: Bind,
}

/// How Services reach their endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServiceProxy {
    /// Programs on sockets and devices
    Ebpf,
    /// Rules in netfilter
    Iptables,
    /// Not at all
    Off,
}

/// `seaway-agent get`
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// What to show
    #[arg(value_enum)]
    pub what: What,
    /// The running agent's --run-dir
    #[arg(long, env = "SEAWAY_RUN_DIR", default_value = "/run/seaway")]
    pub run_dir: PathBuf,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What `get` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// The pods of this node
    #[value(alias = "pod", alias = "po")]
    Pods,
    /// The Services this node knows
    #[value(alias = "service", alias = "svc")]
    Services,
}

/// How `get` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One line per object
    Table,
    /// A List, as the Kubernetes API gives it
    Json,
}

/// Where to listen, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind(pub Option<SocketAddr>);

fn parse_bind(text: &str) -> Result<Bind, String> {
    if text == "off" || text.is_empty() {
        return Ok(Bind(None));
    }
    text.parse()
        .map(|address| Bind(Some(address)))
        .map_err(|_syntax: std::net::AddrParseError| {
            "expected ADDRESS:PORT, such as 127.0.0.1:10248, or off".to_owned()
        })
}

/// With its length: an address alone would be a range of one.
fn parse_cidr(text: &str) -> Result<Ipv4Network, String> {
    let expected = || "expected an IPv4 range such as 10.244.0.0/24".to_owned();
    if !text.contains('/') {
        return Err(expected());
    }
    text.parse()
        .map_err(|_syntax: ipnetwork::IpNetworkError| expected())
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
