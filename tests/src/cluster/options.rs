//! What a cluster is made of.

use std::path::PathBuf;

use super::Families;

/// Who runs the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// `seaway-agent`
    Seaway,
    /// The stock kubelet
    Kubelet,
}

/// Who serves Services on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// `seaway-proxy --service-proxy=ebpf`
    SeawayEbpf,
    /// `seaway-proxy --service-proxy=iptables`
    SeawayIptables,
    /// The stock kube-proxy, iptables mode
    KubeProxy,
    /// Whatever is deployed later
    None,
}

/// Who connects the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cni {
    /// `seaway-cni`, and the pod network of `seaway-proxy`
    Seaway,
    /// The reference plugins bridge, host-local and portmap, routes made by hand
    Bridge,
    /// Whatever is deployed later; there is not even a plugin
    None,
}

/// What a node is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOptions {
    /// Runs pods
    pub agent: Agent,
    /// Serves Services
    pub proxy: Proxy,
    /// Connects pods
    pub cni: Cni,
    /// Further flags of `seaway-proxy`, where it makes the pod network
    pub pod_network: &'static [&'static str],
}

impl NodeOptions {
    /// Everything ours.
    #[must_use]
    pub const fn seaway(proxy: Proxy) -> Self {
        Self {
            agent: Agent::Seaway,
            proxy,
            cni: Cni::Seaway,
            pod_network: &[],
        }
    }

    /// Our pod network alone, under upstream's kubelet and kube-proxy.
    #[must_use]
    pub const fn pod_network(flags: &'static [&'static str]) -> Self {
        Self {
            agent: Agent::Kubelet,
            proxy: Proxy::KubeProxy,
            cni: Cni::Seaway,
            pod_network: flags,
        }
    }

    /// An agent on a node that nothing else is on yet.
    #[must_use]
    pub const fn bare(agent: Agent) -> Self {
        Self {
            agent,
            proxy: Proxy::None,
            cni: Cni::None,
            pod_network: &[],
        }
    }

    /// Everything stock.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            agent: Agent::Kubelet,
            proxy: Proxy::KubeProxy,
            cni: Cni::Bridge,
            pod_network: &[],
        }
    }
}

/// What the registry of a cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Images {
    /// What the tests of this tree need
    Few,
    /// What upstream's end-to-end tests need
    EndToEnd {
        /// The folder of the Go module `k8s.io/kubernetes`
        kubernetes: PathBuf,
    },
}

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Its nodes; they are called `node-1`, `node-2` and so on.
    pub nodes: Vec<NodeOptions>,
    /// Start agents and proxies first, and the API server only when each has found it absent.
    pub api_last: bool,
    /// Which addresses it has.
    pub families: Families,
    /// How many of the nodes, from the first, [`super::Cluster::start`] waits for.
    pub ready: usize,
    /// Which images can be pulled.
    pub images: Images,
}

impl ClusterOptions {
    /// Nodes of these kinds.
    #[must_use]
    pub fn of(nodes: Vec<NodeOptions>) -> Self {
        Self {
            ready: nodes.len(),
            nodes,
            api_last: false,
            families: Families::V4,
            images: Images::Few,
        }
    }

    /// Two nodes alike.
    #[must_use]
    pub fn two(node: NodeOptions) -> Self {
        Self::of(vec![node, node])
    }
}
