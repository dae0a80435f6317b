//! The command line, parsed into types.

use std::net::IpAddr;
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
mod run;
mod services;
#[cfg(test)]
mod tests;
mod tuning;
mod upkeep;

pub use ask::{ExplainArgs, Output, StatusArgs};
pub use file::Given;
pub use install::{HostConfigArgs, InstallArgs};
pub use network::NetworkArgs;
pub use run::{Bind, RunArgs};
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
    /// Say whether the daemon has brought everything into the kernel, and it is still there
    ///
    /// Exit status: 0 if so, 1 if not or if no daemon runs, 64 for bad usage, 69 if that
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
    #[arg(long, env = "SEAWAY_CNI_BIN_DIR", value_parser = parse::absolute, value_name = "DIR")]
    pub cni_bin_dir: Option<PathBuf>,
    /// Where the node's network daemons look for settings
    #[command(flatten)]
    pub host: HostConfigArgs,
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
        value_parser = parse::absolute,
        default_value = "/sys/fs/bpf/seaway/v1"
    )]
    pub bpffs_dir: PathBuf,
    /// State that does not outlive a boot
    #[arg(
        long,
        env = "SEAWAY_RUN_DIR",
        value_parser = parse::absolute,
        value_name = "DIR",
        default_value = "/run/seaway"
    )]
    pub run_dir: PathBuf,
    /// Where the container runtime looks for CNI confs
    #[arg(
        long,
        env = "SEAWAY_CNI_CONF_DIR",
        value_parser = parse::absolute,
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
