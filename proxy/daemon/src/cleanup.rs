//! Takes everything of ours off the node.

use anyhow::Context;
use seaway_podnet::{ConfFile, PodNetwork, StateFile};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::backends::{remove_ebpf, remove_iptables};
use crate::chain::Chain;
use crate::config::{Config, PodNetworkConfig};
use crate::explain;
use crate::install::Installed;

/// Removes the CNI conf, the routes and masquerade of the pod network, the rules
/// of the iptables backend and the BPF objects of the eBPF backend, whichever run
/// made them, and what `install` has left.
///
/// The conf goes first, so that no pod starts on half a network; the plugin's binary
/// goes last, and not before the conf is gone and no pod needs it to be deleted. A daemon
/// that runs on would write everything again, so it has to be ended before.
///
/// # Errors
/// The first part that could not be looked for or removed; the other parts are removed
/// all the same. Also if a pod, the conf or a daemon still needs the plugin, which stays then.
pub async fn cleanup(config: Config, installed: Installed) -> anyhow::Result<()> {
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
    // What a dead daemon has left belongs to no part.
    if installed.daemon_runs().await {
        warn!("A daemon runs, and writes everything again");
    } else if let Err(error) = explain::server::remove(&config.run_dir) {
        warn!(%error, "Cannot remove the daemon's socket");
    }
    part(
        "the iptables rules",
        remove_iptables(config.run_dir).await.map_err(Into::into),
    );
    part(
        "the BPF objects",
        remove_ebpf(config.bpffs_dir).await.map_err(Into::into),
    );
    part(
        "the settings of network daemons",
        installed.remove_settings().await,
    );
    // Only now, or the runtime would start pods on the former network beside ours.
    part("foreign confs set aside", installed.put_confs_back());
    part("the CNI plugin", installed.remove_plugin().await);
    outcome
}

fn remove_conf(network: &PodNetworkConfig) -> anyhow::Result<bool> {
    let conf = ConfFile::new(&network.cni_conf_dir, &network.run_dir).remove();
    // Also where the conf stays: without it the plugin starts no pod on half a network.
    let state = StateFile::new(&network.run_dir).remove();
    let (conf, state) = (conf?, state?);
    Ok(conf || state)
}

fn remove_pod_network() -> anyhow::Result<bool> {
    let changes = PodNetwork::open()?.remove_all()?;
    let any = changes.any();
    match changes.failed.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(any),
    }
}
