//! What a cluster is made of.

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
}

/// Who connects the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cni {
    /// `seaway-cni`, and the pod network of `seaway-proxy`
    Seaway,
    /// The reference plugins bridge, host-local and portmap, routes made by hand
    Bridge,
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
}

impl NodeOptions {
    /// Everything ours.
    #[must_use]
    pub const fn seaway(proxy: Proxy) -> Self {
        Self {
            agent: Agent::Seaway,
            proxy,
            cni: Cni::Seaway,
        }
    }

    /// Everything stock.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            agent: Agent::Kubelet,
            proxy: Proxy::KubeProxy,
            cni: Cni::Bridge,
        }
    }
}

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Its nodes; they are called `node-1`, `node-2` and so on.
    pub nodes: Vec<NodeOptions>,
    /// Start agents and proxies first, and the API server only when each has found it absent.
    pub api_last: bool,
}

impl ClusterOptions {
    /// Nodes of these kinds.
    #[must_use]
    pub fn of(nodes: Vec<NodeOptions>) -> Self {
        Self {
            nodes,
            api_last: false,
        }
    }

    /// Two nodes alike.
    #[must_use]
    pub fn two(node: NodeOptions) -> Self {
        Self::of(vec![node, node])
    }
}
