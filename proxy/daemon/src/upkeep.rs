//! Puts back what others remove from this node's firewall and from its routes to its own
//! pods, and has removed what dead pods have left.
//!
//! `nft flush ruleset`, a reload of firewalld or an `iptables -F` take our rules along and
//! tell nobody. Here it is noticed:
//!
//! ```text
//! nftables' notifications ─200 ms─┐                 ┌─► a round of the pod network
//! every 5 s ──────────────────────┼─► look ─ lost? ─┤    (masquerade)
//!                                 │                 └─► seaway-cni repair
//! every minute ──► seaway-cni sweep ┤                    (hostPorts, FORWARD, routes)
//! a pod's link went down or  300 ms ┘
//! its route was removed
//! ```
//!
//! A look compares what is there with what was there after the last repair; what we or the
//! plugin add is more than before and no reason for anything. A notification that rules of
//! ours were removed is one by itself: they may not have been seen yet by any look. Whoever
//! is asked to write reads first, so a rule that was only replaced costs no more than that.
//!
//! What a pod's hostPorts are only the plugin knows, so its own executable is run, for every
//! network that has records in our run dir; where it is absent, as on a node with another CNI
//! plugin, that is said once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;

mod links;
mod metrics;
mod notices;
mod plugin;
mod repairs;
mod sweeps;

pub(crate) use metrics::Metrics;

use crate::config::UpkeepConfig;
use links::Losses;
use notices::Notices;
use plugin::Plugin;
use repairs::Repairs;
use sweeps::Sweeps;

/// A flush is many changes; the last of them is waited for.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// A pod that is deleted loses its link within that time.
const POD_DEBOUNCE: Duration = Duration::from_millis(300);
/// What notifies nobody is noticed by then: iptables-legacy, and lost notifications.
const LOOK: Duration = Duration::from_secs(5);

/// The task.
#[derive(Debug)]
pub(crate) struct Upkeep {
    repairs: Repairs,
    sweeps: Sweeps,
    sweep_interval: Duration,
    stop: CancellationToken,
}

/// A look could not be waited for: it panicked.
#[derive(Debug, thiserror::Error)]
#[error("a look at the firewall panicked")]
pub(crate) struct LookPanicked(#[source] JoinError);

impl Upkeep {
    /// `pod_network` is asked for a round when its masquerade has gone.
    pub(crate) fn new(
        config: &UpkeepConfig,
        run_dir: &Path,
        metrics: Metrics,
        pod_network: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        let plugin = Arc::new(Plugin::new(config.cni_bin.clone(), run_dir.join("cni")));
        Self {
            repairs: Repairs::new(plugin.clone(), metrics.clone(), pod_network),
            sweeps: Sweeps::new(plugin, metrics),
            sweep_interval: config.sweep_interval,
            stop,
        }
    }

    /// Runs until stopped.
    pub(crate) async fn run(mut self) -> Result<(), LookPanicked> {
        let stop = self.stop.clone();
        // A repair or sweep that has begun is one process, which does no harm alone.
        stop.run_until_cancelled(self.follow())
            .await
            .unwrap_or(Ok(()))
    }

    async fn follow(&mut self) -> Result<(), LookPanicked> {
        let mut notices = Notices::open();
        let mut losses = Losses::open();
        let timer = |period| {
            let mut timer = interval_at(Instant::now() + period, period);
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
            timer
        };
        let (mut look, mut sweep) = (timer(LOOK), timer(self.sweep_interval));
        self.repairs.look().await?;
        loop {
            tokio::select! {
                removed = notices.next() => {
                    sleep(DEBOUNCE).await;
                    if notices.clear() || removed {
                        self.repairs.removed();
                    }
                    self.repairs.look().await?;
                }
                () = losses.next() => {
                    sleep(POD_DEBOUNCE).await;
                    if losses.clear() {
                        self.repairs.in_any_case();
                        self.repairs.look().await?;
                    }
                }
                _ = look.tick() => {
                    // What has broken is opened before the look, so that nothing is missed after it.
                    notices.listen();
                    losses.listen();
                    self.repairs.look().await?;
                }
                _ = sweep.tick() => {
                    self.sweeps.sweep().await;
                    self.repairs.in_any_case();
                    self.repairs.look().await?;
                }
            }
        }
    }
}
