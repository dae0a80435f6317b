//! The container runtime of a node.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Node;
use crate::cluster::place::Daemon;
use crate::cluster::{registry, tool};

/// Where it listens, in the node's mount namespace.
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

pub(super) fn daemon(node: &Node, cluster_dir: &Path) -> Result<Daemon> {
    let registries = registry::write_hosts(cluster_dir, node.families)?;
    let config = node.dir.join("containerd.toml");
    fs::write(&config, configuration(&registries))
        .with_context(|| format!("write {}", config.display()))?;
    // It looks for its shim and for runc.
    let path = format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        crate::cache_dir().join("bin").display()
    );
    let name = format!("{}-containerd", node.name);
    Ok(Daemon::new(node.logs(), &name, tool("containerd"))
        .args(["--config".to_owned(), config.display().to_string()])
        .env("PATH", path))
}

fn configuration(registries: &Path) -> String {
    let pause = registry::PAUSE;
    let registries = registries.display();
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{registries}"
[plugins."io.containerd.cri.v1.runtime"]
  # Machines without CAP_SYS_RESOURCE cannot lower it, and no sandbox would start.
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"#
    )
}
