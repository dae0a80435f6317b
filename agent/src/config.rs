//! What the command line means, checked and completed once.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use seaway_agent_core::eviction::EvictionHard;
use seaway_agent_core::validate::is_dns_subdomain;

use crate::args::{Bind, NodeArgs};

/// What is known of this node before anything runs.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Name of the Node object.
    pub name: String,
    /// At most one per family, the first is `status.hostIP`.
    pub ips: Vec<IpAddr>,
    /// Path of the runtime's CRI socket.
    pub runtime_socket: PathBuf,
    /// Pods' volumes are below `pods/` here.
    pub root_dir: PathBuf,
    /// Containers' logs: `NAMESPACE_NAME_UID/CONTAINER/N.log` below it.
    pub pod_log_dir: PathBuf,
    /// The runtime's CNI library keeps `results/` in it.
    pub cni_cache_dir: PathBuf,
    /// Parent of all pods' cgroups, from every hierarchy's root: `/`, `/node-a`.
    pub cgroup_root: String,
    /// State that does not outlive a boot.
    pub run_dir: PathBuf,
    /// DNS servers of pods with `dnsPolicy: ClusterFirst`.
    pub cluster_dns: Vec<IpAddr>,
    /// Search domain of the cluster.
    pub cluster_domain: String,
    /// Capacity `pods`.
    pub max_pods: u32,
    /// What must stay free.
    pub eviction_hard: EvictionHard,
    /// Where plain `/healthz` is served.
    pub healthz_bind: Option<SocketAddr>,
}

/// The command line asks for something that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The runtime is not on a unix socket.
    #[error("--runtime-endpoint {0}: only unix:///PATH is supported")]
    RuntimeEndpoint(String),
    /// Kubernetes object names are DNS names.
    #[error("--node-name {0}: not a DNS subdomain (lower case letters, digits, `-` and `.`)")]
    NodeName(String),
    /// The host has no usable name.
    #[error("read the host name (give --node-name)")]
    HostName(#[source] nix::Error),
    /// A node has one address per family.
    #[error("--node-ip: {0} and {1} are of the same family; give one address per family")]
    TwoOfAFamily(IpAddr, IpAddr),
    /// Cgroup paths start at the root.
    #[error("--cgroup-root {0}: must start with /")]
    CgroupRoot(String),
}

impl NodeConfig {
    /// Checks `args` and fills in what the host knows.
    pub fn new(args: &NodeArgs) -> Result<Self, ConfigError> {
        let Bind(healthz_bind) = args.healthz_bind_address;
        if !args.cgroup_root.starts_with('/') {
            return Err(ConfigError::CgroupRoot(args.cgroup_root.clone()));
        }
        Ok(Self {
            name: node_name(args.node_name.as_deref())?,
            ips: node_ips(&args.node_ip)?,
            runtime_socket: runtime_socket(&args.runtime_endpoint)?,
            root_dir: args.root_dir.clone(),
            pod_log_dir: args.pod_log_dir.clone(),
            cni_cache_dir: args.cni_cache_dir.clone(),
            cgroup_root: args.cgroup_root.clone(),
            run_dir: args.run_dir.clone(),
            cluster_dns: args.cluster_dns.clone(),
            cluster_domain: args.cluster_domain.clone(),
            max_pods: args.max_pods,
            eviction_hard: args.eviction_hard,
            healthz_bind,
        })
    }
}

fn node_name(given: Option<&str>) -> Result<String, ConfigError> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => nix::unistd::gethostname()
            .map_err(ConfigError::HostName)?
            .to_string_lossy()
            .to_lowercase(),
    };
    if is_dns_subdomain(&name) {
        Ok(name)
    } else {
        Err(ConfigError::NodeName(name))
    }
}

fn runtime_socket(endpoint: &str) -> Result<PathBuf, ConfigError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if path.starts_with('/') {
        Ok(PathBuf::from(path))
    } else {
        Err(ConfigError::RuntimeEndpoint(endpoint.to_owned()))
    }
}

fn node_ips(given: &[IpAddr]) -> Result<Vec<IpAddr>, ConfigError> {
    for (index, ip) in given.iter().enumerate() {
        if let Some(other) = given[..index]
            .iter()
            .find(|other| other.is_ipv4() == ip.is_ipv4())
        {
            return Err(ConfigError::TwoOfAFamily(*other, *ip));
        }
    }
    if given.is_empty() {
        return Ok(vec![
            default_route_source().unwrap_or(IpAddr::from([127, 0, 0, 1])),
        ]);
    }
    Ok(given.to_vec())
}

/// The source address of the default route: what the kernel picks for an address
/// that nobody has (RFC 5737). Connecting a UDP socket sends nothing.
fn default_route_source() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_endpoints_are_unix_sockets() {
        assert_eq!(
            runtime_socket("unix:///run/c.sock").unwrap(),
            PathBuf::from("/run/c.sock")
        );
        assert_eq!(
            runtime_socket("/run/c.sock").unwrap(),
            PathBuf::from("/run/c.sock")
        );
        let error = runtime_socket("tcp://1.2.3.4:5").unwrap_err().to_string();
        assert!(
            error.contains("--runtime-endpoint tcp://1.2.3.4:5"),
            "{error}"
        );
    }

    #[test]
    fn node_names_are_dns_names() {
        assert_eq!(node_name(Some("a-1.example")).unwrap(), "a-1.example");
        for bad in ["", "A", "a_b", "-a", "a..b"] {
            assert!(node_name(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_address_per_family() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(node_ips(&[ip("10.0.0.1"), ip("fd00::1")]).unwrap().len(), 2);
        let error = node_ips(&[ip("10.0.0.1"), ip("10.0.0.2")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("10.0.0.1 and 10.0.0.2"), "{error}");
        assert_eq!(node_ips(&[]).unwrap().len(), 1);
    }
}
