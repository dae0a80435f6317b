//! Keeps the pod network and the CNI conf in agreement with the Nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use seaway_podnet::{
    Changes, ConfError, ConfFile, Desired, NetworkConf, PodNetwork, Skip, Waiting, desired,
};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::chain::Chain;
use crate::config::PodNetworkConfig;
use crate::health::{Health, POD_NETWORK};
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::service_proxy::sync::Timing;

/// How often the kernel is compared with what it should hold, if nothing changes.
const RESYNC: Duration = Duration::from_secs(30);

/// Everything that the pod network's loop needs.
#[derive(Debug)]
pub(crate) struct PodNetworkLoop {
    pub(crate) node_name: String,
    pub(crate) config: PodNetworkConfig,
    pub(crate) nodes: watch::Receiver<Nodes>,
    /// Whether the service proxy, if there is one, serves everything.
    pub(crate) services_synced: watch::Receiver<bool>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// A blocking round could not be waited for: it panicked.
#[derive(Debug, thiserror::Error)]
#[error("the pod network's round panicked")]
pub(crate) struct RoundPanicked(#[source] JoinError);

/// What has been said already.
#[derive(Debug, Default)]
struct Said {
    waiting: Option<Waiting>,
    skips: BTreeSet<Skip>,
}

impl PodNetworkLoop {
    /// Runs until stopped. A round that has begun is always finished.
    pub(crate) async fn run(mut self) -> Result<(), RoundPanicked> {
        let mut said = Said::default();
        let mut backoff = Timing::DEFAULT.backoff();
        self.withdraw_stale_conf();
        let stop = self.stop.clone();
        // The senders live as long as the process's tasks; a closed channel means shutdown.
        let listed = async { self.nodes.wait_for(|nodes| nodes.listed).await.map(|_| ()) };
        if !matches!(stop.run_until_cancelled(listed).await, Some(Ok(()))) {
            return Ok(());
        }
        loop {
            let pause = if self.round(&mut said).await? {
                backoff = Timing::DEFAULT.backoff();
                RESYNC
            } else {
                backoff.next().unwrap_or(RESYNC)
            };
            let at_latest = Instant::now() + pause;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Ok(()) = self.nodes.changed() => {}
                Ok(()) = self.services_synced.changed() => {}
                () = sleep_until(at_latest) => {}
            }
        }
    }

    /// A conf of an earlier boot makes the runtime start pods on a node that has nothing.
    fn withdraw_stale_conf(&self) {
        let conf = self.conf_file();
        match conf.withdraw_stale() {
            Ok(true) => {
                info!(path = %conf.path().display(), "Withdrew the CNI conf of an earlier boot");
            }
            Ok(false) => {}
            Err(error) => {
                warn!(error = %Chain(&error), "Cannot withdraw the CNI conf of an earlier boot");
            }
        }
    }

    fn conf_file(&self) -> ConfFile {
        ConfFile::new(&self.config.cni_conf_dir, &self.config.run_dir)
    }

    /// One look at everything; tells whether all of it is as it should be.
    async fn round(&mut self, said: &mut Said) -> Result<bool, RoundPanicked> {
        let services_synced = *self.services_synced.borrow_and_update();
        let want = {
            let nodes = self.nodes.borrow_and_update();
            desired(&self.node_name, &nodes.by_name, &self.config.cluster_cidrs)
        };
        let want = match want {
            Ok(want) => want,
            Err(waiting) => {
                said.waiting(waiting);
                return Ok(true);
            }
        };
        said.waiting = None;
        said.skips(&want.skipped);
        self.metrics.skipped_peers.set(count(want.skipped.len()));
        self.metrics.peer_routes.set(count(want.routes.len()));
        self.health.queued(POD_NETWORK, Instant::now());
        let (conf, config) = (self.conf_file(), self.config.clone());
        let round = move || program(&want, &conf, &config, services_synced);
        let good = tokio::task::spawn_blocking(round)
            .await
            .map_err(RoundPanicked)?;
        if good {
            self.health.updated(POD_NETWORK);
        } else {
            self.metrics.pod_network_failures.inc();
        }
        Ok(good)
    }
}

/// Kernel first, then the conf that promises it. Logs; tells whether all went well.
fn program(want: &Desired, conf: &ConfFile, config: &PodNetworkConfig, publish: bool) -> bool {
    let applied = PodNetwork::open().and_then(|mut network| {
        let changes = network.apply(want)?;
        let mtu = match config.mtu {
            Some(mtu) => mtu,
            None => network.uplink_mtu(want)?,
        };
        Ok((changes, mtu))
    });
    let (changes, mtu) = match applied {
        Ok(applied) => applied,
        Err(error) => {
            warn!(error = %Chain(&error), "Cannot program the pod network, trying again");
            return false;
        }
    };
    log_changes(&changes);
    if publish {
        let content = NetworkConf {
            pod_cidr: want.pod_cidr,
            mtu,
            data_dir: config.run_dir.join("cni"),
        };
        if let Err(error) = publish_conf(conf, &content) {
            warn!(error = %Chain(&error), "Cannot write the CNI conf, trying again");
            return false;
        }
    }
    changes.failed.is_empty()
}

fn publish_conf(file: &ConfFile, content: &NetworkConf) -> Result<(), ConfError> {
    if file.write(content)? {
        let (pod_cidr, mtu) = (content.pod_cidr, content.mtu);
        info!(path = %file.path().display(), %pod_cidr, mtu, "Wrote the CNI conf");
    }
    Ok(())
}

fn log_changes(changes: &Changes) {
    for error in &changes.failed {
        warn!(error = %Chain(error), "Cannot program a part of the pod network, trying again");
    }
    let (replaced, removed) = (changes.replaced, changes.removed);
    if replaced + removed > 0 || changes.node {
        info!(
            replaced,
            removed,
            node = changes.node,
            "Programmed the pod network"
        );
    } else {
        debug!("The pod network is as it should be");
    }
}

impl Said {
    fn waiting(&mut self, waiting: Waiting) {
        if self.waiting.as_ref() != Some(&waiting) {
            info!(reason = %waiting, "Waiting for this node's pod addresses");
            self.waiting = Some(waiting);
        }
    }

    fn skips(&mut self, skipped: &[Skip]) {
        let now: BTreeSet<Skip> = skipped.iter().cloned().collect();
        for Skip { node, reason } in now.difference(&self.skips) {
            warn!(node, %reason, "Skipped a node in the pod network");
        }
        self.skips = now;
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
