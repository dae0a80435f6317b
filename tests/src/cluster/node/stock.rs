//! Upstream's programs: kubelet, kube-proxy, the bridge plugin.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Node, containerd};
use crate::cluster::place::Daemon;
use crate::cluster::tool;

pub(super) fn kubelet(node: &Node) -> Result<Daemon> {
    let config = json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": node.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": node.pki(&format!("{}-serving.crt", node.name)),
        "tlsPrivateKeyFile": node.pki(&format!("{}-serving.key", node.name)),
        "containerRuntimeEndpoint": containerd::ENDPOINT,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroups.name()),
        "clusterDNS": [node.families.dns_ip()],
        "clusterDomain": "cluster.local",
        // What follows is for the machine: v1 hierarchies, no rights over limits, a disk that is
        // full, or much of which is kept for root.
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    });
    let path = node.dir.join("kubelet.json");
    fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))?;
    let name = format!("{}-agent", node.name);
    Ok(Daemon::new(node.logs(), &name, tool("kubelet")).args([
        format!("--config={}", path.display()),
        format!(
            "--kubeconfig={}",
            node.pki(&format!("{}.kubeconfig", node.name))
        ),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", node.ips.join(",")),
    ]))
}

pub(super) fn kube_proxy(node: &Node) -> Daemon {
    let name = format!("{}-proxy", node.name);
    Daemon::new(node.logs(), &name, tool("kube-proxy")).args([
        format!("--kubeconfig={}", node.pki("proxy.kubeconfig")),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={}", node.families.cluster_cidrs()),
        "--proxy-mode=iptables".into(),
        // Read-only in a network namespace.
        "--conntrack-max-per-core=0".into(),
    ])
}

/// The configuration of bridge, host-local and portmap.
pub(super) fn conflist(node: &Node, cidrs: &[String]) -> Value {
    let ranges: Vec<Value> = cidrs.iter().map(|cidr| json!([{"subnet": cidr}])).collect();
    let plans = node.families.plans().iter();
    let routes: Vec<Value> = plans.map(|plan| json!({"dst": plan.everything})).collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "bridge",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": ranges,
                    "routes": routes,
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
