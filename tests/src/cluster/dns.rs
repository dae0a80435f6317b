//! Cluster DNS: CoreDNS beside the control plane, behind a Service without selector.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::pki::Pki;
use super::place::Daemon;
use super::{Cluster, Families, tool};

pub(super) fn server(dir: &Path, pki: &Pki, families: Families) -> Result<Daemon> {
    let kubeconfig = pki.kubeconfig("admin");
    let corefile = format!(
        ".:53 {{
    bind {}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {} cluster
        pods insecure
        ttl 5
    }}
}}
",
        families.control_ip(),
        kubeconfig.display()
    );
    let path = dir.join("Corefile");
    std::fs::write(&path, corefile).with_context(|| format!("write {}", path.display()))?;
    let args = ["-conf".to_owned(), path.display().to_string()];
    Ok(Daemon::new(dir, "coredns", tool("coredns")).args(args))
}

/// Makes the Service that pods ask.
pub(super) fn publish(cluster: &Cluster) -> Result<()> {
    let families = cluster.families();
    let (address_type, dns) = (families.address_type(), families.dns_ip());
    let control = families.control_ip();
    cluster.apply(&format!(
        "apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  clusterIP: \"{dns}\"
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
addressType: {address_type}
endpoints:
- addresses: [\"{control}\"]
  conditions: {{ready: true}}
ports:
- {{name: dns, port: 53, protocol: UDP}}
- {{name: dns-tcp, port: 53, protocol: TCP}}
"
    ))
}
