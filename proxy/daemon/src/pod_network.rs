//! Keeps the pod network in agreement with the Nodes, and says when it serves.
//!
//! ```text
//!  Nodes ────────┐
//!  proven paths ─┼─► PodNetworkLoop ─► Round (blocking) ─► podnet
//!  notices ──────┘         │  └─► Promise ─► ConfKeeper
//!        ▲                 └─► Probing ─► Prober ─► echoes
//!        └─ kernel                          └─► proven paths
//! ```

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use seaway_podnet::{
    Desired, Named, NetworkConf, Paths, PodNetworkError, Serving, StateFile, Uplink, Watched,
    desired,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::chain::Chain;
use crate::conf_keeper::Promise;
use crate::config::PodNetworkConfig;
use crate::health::{Health, POD_NETWORK};
use crate::install::records;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::service_proxy::sync::Timing;

mod listener;
mod prober;
mod round;
mod said;
#[cfg(test)]
mod tests;

use listener::Listener;
pub(crate) use prober::{Prober, Probing};
use round::{Outcome, Round, in_use, named};
use said::Said;

/// How often the kernel is compared with what it should hold, if nothing changes.
const RESYNC: Duration = Duration::from_secs(30);
/// Changes come in groups: a link takes its addresses and routes along.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two rounds, however much happens to the kernel's objects.
const APART: Duration = Duration::from_secs(1);

/// Everything that the pod network's loop needs.
#[derive(Debug)]
pub(crate) struct PodNetworkLoop {
    pub(crate) node_name: String,
    pub(crate) config: PodNetworkConfig,
    pub(crate) nodes: watch::Receiver<Nodes>,
    /// Whether the service proxy, if there is one, serves everything.
    pub(crate) services_synced: watch::Receiver<bool>,
    /// What the prober has found out, if anything yet, and what it is to find out.
    pub(crate) proven: watch::Receiver<Option<Paths>>,
    pub(crate) probing: watch::Sender<Probing>,
    /// Whoever is told when the node serves.
    pub(crate) promise: watch::Sender<Option<Promise>>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    /// Somebody has removed what a round writes.
    pub(crate) repair: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

/// A blocking round could not be waited for: it panicked.
#[derive(Debug, thiserror::Error)]
#[error("a round of the pod network panicked")]
pub(crate) struct RoundPanicked(#[source] pub(crate) JoinError);

/// What is known from the rounds before.
#[derive(Debug, Default)]
struct Memory {
    said: Said,
    watched: Watched,
    /// Paths that an earlier run has proven; until the prober knows better.
    in_use: Option<Paths>,
    /// What holds now.
    proven: Paths,
    /// What the kernel held at the end of the last good round. It follows from the networks
    /// of the operator's link as well, which are in here.
    held: Option<(Desired, Option<Uplink>)>,
}

impl PodNetworkLoop {
    /// Runs until stopped. A round that has begun is always finished.
    pub(crate) async fn run(mut self) -> Result<(), RoundPanicked> {
        let mut memory = Memory::default();
        let mut backoff = Timing::DEFAULT.backoff();
        let stop = self.stop.clone();
        // The senders live as long as the process's tasks; a closed channel means shutdown.
        let listed = async { self.nodes.wait_for(|nodes| nodes.listed).await.map(|_| ()) };
        if !matches!(stop.run_until_cancelled(listed).await, Some(Ok(()))) {
            return Ok(());
        }
        let mut listener = Listener::default();
        loop {
            // Before the look at the kernel: what happens after that look is told.
            listener.listen();
            let pause = if self.round(&mut memory).await? {
                backoff = Timing::DEFAULT.backoff();
                RESYNC
            } else {
                backoff.next().unwrap_or(RESYNC)
            };
            let ended = Instant::now();
            let woken = self.woken(&mut listener, &memory.watched, ended, pause);
            let Some(start) = stop.run_until_cancelled(woken).await else {
                return Ok(());
            };
            let settled = stop.run_until_cancelled(sleep_until(start)).await;
            if settled.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns when there is a reason for a round, with the time to begin it.
    async fn woken(
        &mut self,
        listener: &mut Listener,
        watched: &Watched,
        ended: Instant,
        pause: Duration,
    ) -> Instant {
        let settled = || Instant::now() + SETTLE;
        tokio::select! {
            Ok(()) = self.services_synced.changed() => Instant::now(),
            // Whoever asks does so a few times in a row at most.
            () = self.repair.notified() => Instant::now(),
            Ok(()) = self.nodes.changed() => settled(),
            // These can go on and on, and the last round's own work is among them.
            Ok(()) = self.proven.changed() => settled().max(ended + APART),
            () = listener.concerned(watched) => settled().max(ended + APART),
            () = sleep_until(ended + pause) => Instant::now(),
        }
    }

    /// One look at everything; tells whether all of it is as it should be.
    async fn round(&mut self, memory: &mut Memory) -> Result<bool, RoundPanicked> {
        let publish = *self.services_synced.borrow_and_update();
        let looked = named(self.config.settings.uplink.clone()).await?;
        let want = match self.want(memory, looked).await? {
            Ok(want) => want,
            Err(good) => return Ok(good),
        };
        self.health.queued(POD_NETWORK, Instant::now());
        let round = Round { want: want.clone() };
        let outcome = tokio::task::spawn_blocking(move || round.run())
            .await
            .map_err(RoundPanicked)?;
        let good = outcome.good;
        if let Some(mtu) = outcome.mtu.filter(|_| publish) {
            self.publish(&want, mtu);
        }
        self.ended(memory, want, &outcome);
        Ok(good)
    }

    /// What the kernel should hold now, after a look at the operator's link; if there is no
    /// word on that, whether it may be so.
    async fn want(
        &mut self,
        memory: &mut Memory,
        looked: Result<Option<Named>, PodNetworkError>,
    ) -> Result<Result<Desired, bool>, RoundPanicked> {
        let settings = &self.config.settings;
        if let Some(proven) = self.proven.borrow_and_update().clone() {
            (memory.proven, memory.in_use) = (proven, Some(Paths::default()));
        }
        let nodes = self.nodes.borrow_and_update().by_name.clone();
        let named = match looked {
            Ok(named) => named,
            Err(error) => {
                self.blind(memory, &error);
                return Ok(Err(false));
            }
        };
        let wanted =
            |proven: &Paths| desired(&self.node_name, &nodes, settings, proven, named.as_ref());
        let mut want = wanted(&memory.proven);
        if let (Ok(first), None) = (&want, &memory.in_use) {
            let in_use = in_use(first.clone()).await?;
            want = wanted(&in_use);
            memory.proven = in_use.clone();
            memory.in_use = Some(in_use);
        }
        let want = match want {
            Ok(want) => want,
            Err(waiting) => {
                memory.said.waiting(waiting);
                return Ok(Err(true));
            }
        };
        memory.said.wanted(&want, settings);
        self.metrics.pod_network.wanted(&want);
        Ok(Ok(want))
    }

    /// What is wanted cannot be told. All stays as it is.
    fn blind(&self, memory: &mut Memory, error: &PodNetworkError) {
        self.health.queued(POD_NETWORK, Instant::now());
        memory.said.failed(Some(&Chain(error).to_string()));
        self.failed(memory);
    }

    /// The node serves. A part that could not be programmed is no reason to start no pods.
    fn publish(&self, want: &Desired, mtu: u32) {
        let run_dir = &self.config.run_dir;
        let promise = Some(Promise {
            conf: NetworkConf {
                pod_cidrs: want.pod_cidrs.clone(),
                mtu,
                data_dir: records::data_dir(run_dir),
                state_file: StateFile::new(run_dir).path().to_owned(),
                sticky: self.config.settings.sticky_addresses,
            },
            serving: Serving {
                mode: want.mode.as_str(),
                mtu,
                device: want.overlay.as_ref().map(|overlay| overlay.device.clone()),
            },
        });
        self.promise.send_if_modified(|old| {
            let news = *old != promise;
            *old = promise;
            news
        });
    }

    /// Draws the conclusions from a round.
    fn ended(&self, memory: &mut Memory, want: Desired, outcome: &Outcome) {
        memory.said.failed(outcome.failure.as_ref());
        let this = (want, outcome.uplink.clone());
        if let Some(changes) = &outcome.changes {
            let drift = memory.held.as_ref() == Some(&this);
            memory.said.changed(changes, drift);
            if drift {
                self.metrics.pod_network.repaired(changes);
            }
        }
        let (want, uplink) = (&this.0, this.1.as_ref());
        memory.watched = Watched::new(want, uplink);
        if let (Some(uplink), Some(mtu)) = (uplink, outcome.mtu) {
            memory.said.uplink(uplink, mtu, want);
            let probing = Probing {
                probes: want.probes.clone(),
                size: mtu,
                uplink: Some(uplink.link.index),
                in_use: memory.in_use.clone().unwrap_or_default(),
            };
            self.probing.send_if_modified(|now| {
                let news = *now != probing;
                *now = probing;
                news
            });
        }
        self.judge(memory, this, outcome);
    }

    /// What it means for the node's health and for the next round, which comes soon if anything
    /// has failed. That somebody else has a peer's route makes no node ill: it has its line in the
    /// log, and counts. What else the kernel refuses may concern all peers.
    fn judge(&self, memory: &mut Memory, held: (Desired, Option<Uplink>), outcome: &Outcome) {
        if outcome.good {
            self.health.updated(POD_NETWORK);
            memory.held = Some(held);
            return;
        }
        let mut failed = outcome.changes.iter().flat_map(|changes| &changes.failed);
        let foreign = failed.all(|error| matches!(error, PodNetworkError::ForeignRoute { .. }));
        if outcome.failure.is_none() && foreign {
            self.health.partly_updated(POD_NETWORK);
        }
        self.failed(memory);
    }

    fn failed(&self, memory: &mut Memory) {
        self.metrics.pod_network.failures.inc();
        memory.held = None;
    }
}

/// `inner`, watched for readiness. It must own its descriptor and keep it open.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for types whose descriptor may change; these own theirs"
)]
pub(crate) fn registered<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(inner)
}
