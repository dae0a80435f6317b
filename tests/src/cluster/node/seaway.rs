//! Our programs.

use super::{Node, containerd};
use crate::bin;
use crate::cluster::Cni;
use crate::cluster::place::Daemon;

pub(super) fn agent(node: &Node) -> Daemon {
    let name = format!("{}-agent", node.name);
    Daemon::new(node.logs(), &name, bin("seaway-agent"))
        .args([
            "run".to_owned(),
            format!(
                "--kubeconfig={}",
                node.pki(&format!("{}.kubeconfig", node.name))
            ),
            format!("--node-name={}", node.name),
            format!("--node-ip={}", node.ip()),
            format!("--runtime-endpoint={}", containerd::ENDPOINT),
            format!("--cgroup-root=/{}", node.cgroups.name()),
            format!("--client-ca-file={}", node.pki("ca.crt")),
            format!(
                "--tls-cert-file={}",
                node.pki(&format!("{}-serving.crt", node.name))
            ),
            format!(
                "--tls-private-key-file={}",
                node.pki(&format!("{}-serving.key", node.name))
            ),
            format!("--cluster-dns={}", node.families.dns_ip()),
            "--cluster-domain=cluster.local".into(),
            // What the machine is short of is no matter here, as for the kubelet beside it.
            "--eviction-hard=memory.available<0,nodefs.available<0,nodefs.inodesFree<0".into(),
        ])
        .env("RUST_BACKTRACE", "1")
}

/// The pod network alone, beside kube-proxy, which has the usual ports.
pub(super) fn pod_network(node: &Node) -> Daemon {
    proxy(node, "off").args([
        "--healthz-bind-address=127.0.0.1:10266",
        "--metrics-bind-address=127.0.0.1:10259",
    ])
}

/// `seaway-proxy` with the given service proxy, and the pod network when the CNI is ours.
pub(super) fn proxy(node: &Node, service_proxy: &str) -> Daemon {
    let pod_network = if node.options.cni == Cni::Seaway {
        "on"
    } else {
        "off"
    };
    let role = if service_proxy == "off" {
        "pod-network"
    } else {
        "proxy"
    };
    let name = format!("{}-{role}", node.name);
    Daemon::new(node.logs(), &name, bin("seaway-proxy"))
        .args([
            "run".to_owned(),
            format!("--kubeconfig={}", node.pki("proxy.kubeconfig")),
            format!("--node-name={}", node.name),
            format!("--service-proxy={service_proxy}"),
            format!("--pod-network={pod_network}"),
            format!("--cluster-cidr={}", node.families.cluster_cidrs()),
            format!("--cgroup-root={}", node.cgroups.v2().display()),
        ])
        .args(node.pod_network_args.clone())
        .env("RUST_BACKTRACE", "1")
}
