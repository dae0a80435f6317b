//! Takes everything of ours off the node.

use anyhow::Context;
use seaway_podnet::{ConfFile, PodNetwork};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::backends::{remove_ebpf, remove_iptables};
use crate::chain::Chain;
use crate::config::{Config, PodNetworkConfig};

/// Removes the CNI conf, the routes and masquerade of the pod network, the rules
/// of the iptables backend and the BPF objects of the eBPF backend, whichever run
/// made them. The conf goes first, so that no pod starts on half a network.
///
/// # Errors
/// The first part that could not be looked for or removed; the other parts are removed
/// all the same.
pub async fn cleanup(config: Config) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    let mut part = |name: &'static str, result: anyhow::Result<bool>| match result {
        Ok(true) => info!(part = name, "Removed"),
        Ok(false) => info!(part = name, "Nothing to remove"),
        Err(error) if outcome.is_ok() => outcome = Err(error.context(format!("remove {name}"))),
        Err(error) => warn!(part = name, error = %Chain(error.as_ref()), "Cannot remove"),
    };
    if let Some(network) = config.pod_network {
        part("the CNI conf", remove_conf(&network));
        let removed = spawn_blocking(remove_pod_network).await;
        part(
            "the pod network",
            removed.context("on a blocking thread").and_then(|r| r),
        );
    }
    part(
        "the iptables rules",
        remove_iptables(config.run_dir).await.map_err(Into::into),
    );
    part(
        "the BPF objects",
        remove_ebpf(config.bpffs_dir).await.map_err(Into::into),
    );
    outcome
}

fn remove_conf(network: &PodNetworkConfig) -> anyhow::Result<bool> {
    Ok(ConfFile::new(&network.cni_conf_dir, &network.run_dir).remove()?)
}

fn remove_pod_network() -> anyhow::Result<bool> {
    let changes = PodNetwork::open()?.remove_all()?;
    match changes.failed.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(changes.node || changes.removed > 0),
    }
}
