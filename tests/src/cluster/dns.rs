//! Cluster DNS: CoreDNS beside the control plane, behind a Service without selector.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::pki::Pki;
use super::place::Daemon;
use super::{CONTROL_IP, Cluster, DNS_IP, tool};

pub(super) fn server(dir: &Path, pki: &Pki) -> Result<Daemon> {
    let kubeconfig = pki.kubeconfig("admin");
    let corefile = format!(
        ".:53 {{
    bind {CONTROL_IP}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {} cluster
        pods insecure
        ttl 5
    }}
}}
",
        kubeconfig.display()
    );
    let path = dir.join("Corefile");
    std::fs::write(&path, corefile).with_context(|| format!("write {}", path.display()))?;
    let args = ["-conf".to_owned(), path.display().to_string()];
    Ok(Daemon::new(dir, "coredns", tool("coredns")).args(args))
}

/// Makes the Service that pods ask.
pub(super) fn publish(cluster: &Cluster) -> Result<()> {
    cluster.apply(&format!(
        "apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  clusterIP: {DNS_IP}
  ports:
  - {{name: dns, port: 53, protocol: UDP}}
  - {{name: dns-tcp, port: 53, protocol: TCP}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns-1
  namespace: kube-system
  labels: {{kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints:
- addresses: [{CONTROL_IP}]
  conditions: {{ready: true}}
ports:
- {{name: dns, port: 53, protocol: UDP}}
- {{name: dns-tcp, port: 53, protocol: TCP}}
"
    ))
}
