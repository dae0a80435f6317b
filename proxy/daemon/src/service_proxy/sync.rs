//! When to make the kernel match: the timer around [`sync_once`].

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::{compile, sync_once};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::node;
use super::skips::Skips;
use super::{Feed, Progress};
use crate::chain::Chain;
use crate::config::ServicesConfig;
use crate::health::{Health, SERVICES_V4};
use crate::health_checks::Wanted;
use crate::metrics::Metrics;

/// When rounds happen. Pauses are counted from the end of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The shortest pause; changes that come meanwhile share the next round.
    pub(crate) pause_min: Duration,
    /// The longest pause after a good round, however long it took.
    pub(crate) pause_max: Duration,
    /// How often at most the kernel is read back to look for drift.
    pub(crate) read_back_min: Duration,
    /// How often at least.
    pub(crate) read_back_max: Duration,
    /// The first pause after a failed round; it doubles from failure to failure.
    pub(crate) retry_min: Duration,
    /// The longest pause after a failed round: kube-proxy's syncPeriod.
    pub(crate) retry_max: Duration,
    /// How long the first round waits for this node's own object when all else is
    /// known: as long as kube-proxy.
    pub(crate) node_patience: Duration,
}

impl Timing {
    /// A change after a quiet time goes to the kernel at once. In a storm the
    /// loop works at most half of the time, and looks for drift 1 % of it.
    pub(crate) const DEFAULT: Self = Self {
        pause_min: Duration::from_millis(50),
        pause_max: Duration::from_secs(1),
        read_back_min: Duration::from_secs(30),
        read_back_max: Duration::from_hours(1),
        retry_min: Duration::from_millis(500),
        retry_max: Duration::from_secs(30),
        node_patience: Duration::from_secs(30),
    };

    pub(crate) fn backoff(self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(self.retry_min)
            .with_max_delay(self.retry_max)
            .with_jitter()
            .without_max_times()
            .build()
    }
}

/// How many failures in a row may ask to be retried at once before that is not believed.
const HASTE: u32 = 3;

/// Everything that the loop needs besides the backend.
#[derive(Debug)]
pub(crate) struct SyncLoop {
    pub(crate) feed: Arc<Feed>,
    pub(crate) node_name: String,
    pub(crate) config: ServicesConfig,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    pub(crate) timing: Timing,
    /// Becomes true when the kernel serves everything for the first time.
    pub(crate) synced: watch::Sender<bool>,
    /// What load balancers may be told, once the kernel serves it.
    pub(crate) health_checks: watch::Sender<Wanted>,
    pub(crate) stop: CancellationToken,
}

impl SyncLoop {
    /// Keeps `backend` in agreement with the feed until stopped. A round that has
    /// begun is always finished.
    pub(crate) async fn run<B: Backend>(self, mut backend: B) {
        let mut progress = self.feed.progress();
        let stop = self.stop.clone();
        let gate = self.gate(&mut progress);
        if stop.run_until_cancelled(gate).await.is_none() {
            return;
        }
        let mut rounds = Rounds::new(self.timing);
        loop {
            // Seen before the model is read: what comes later starts another round.
            let generation = progress.borrow_and_update().generation;
            self.health.queued(SERVICES_V4, Instant::now());
            rounds.begun(generation);
            match self.round(&mut backend, &mut rounds).await {
                Ok(()) => rounds.succeeded(),
                Err(retry) => rounds.failed(retry),
            }
            if !self.wait(&mut progress, &rounds).await {
                return;
            }
        }
    }

    /// Until everything is there that the first round should know.
    async fn gate(&self, progress: &mut watch::Receiver<Progress>) {
        // The sender lives in `self.feed`, so the channel cannot close.
        progress.wait_for(|p| p.in_sync()).await.ok();
        let known = || node::known(self.feed.node().as_ref(), &self.config);
        let node = timeout(self.timing.node_patience, progress.wait_for(|_| known()));
        if node.await.is_err() {
            warn!(
                node = self.node_name,
                "This Node or what is needed of it is not there, going on without"
            );
        }
    }

    async fn round<B: Backend>(
        &self,
        backend: &mut B,
        rounds: &mut Rounds<B::Rendered>,
    ) -> Result<(), Retry> {
        let started = Instant::now();
        let services = self.metrics.service_changes.pending();
        let endpoints = self.metrics.endpoint_changes.pending();
        let desired = self.compile(backend, &mut rounds.skips);
        let have = if rounds.read_back_due(started) {
            None
        } else {
            rounds.have.take()
        };
        let full = have.is_none();
        let result = sync_once(backend, have, &desired).await;
        let elapsed = started.elapsed();
        self.metrics.sync_ended(elapsed, result.is_ok());
        let report = result.map_err(|error| {
            rounds.have = None;
            log_failure(backend.name(), &error, rounds.failures);
            error.retry()
        })?;
        self.metrics.service_changes.applied(services);
        self.metrics.endpoint_changes.applied(endpoints);
        self.health.updated(SERVICES_V4);
        self.tell_load_balancers(&desired);
        rounds.have = Some(report.rendered);
        rounds.took(full, elapsed);
        let (backend, services) = (backend.name(), desired.service_ports());
        if !self.synced.send_replace(true) {
            info!(backend, services, ?elapsed, "Programmed all Services");
        } else if full && report.changed && rounds.nothing_new {
            warn!(backend, ?elapsed, "Repaired what somebody else had changed");
        } else {
            debug!(
                backend,
                services,
                changed = report.changed,
                full,
                ?elapsed,
                "Synced"
            );
        }
        Ok(())
    }

    fn tell_load_balancers(&self, desired: &DesiredState) {
        let wanted = Wanted::of(desired);
        self.health_checks.send_if_modified(|known| {
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
    }

    fn compile<B: Backend>(&self, backend: &B, skips: &mut Skips) -> DesiredState {
        let node = node::of(&self.node_name, self.feed.node(), &self.config);
        let mut compiled = compile(&self.feed.model(), &node);
        let unsupported = backend.unsupported(&compiled.desired);
        compiled.skipped.extend(unsupported);
        let skipped = skips.report(compiled.skipped);
        self.metrics
            .skipped
            .set(i64::try_from(skipped).unwrap_or(i64::MAX));
        compiled.desired
    }

    /// Until the next round is due; false when there shall be none.
    async fn wait<R>(&self, progress: &mut watch::Receiver<Progress>, rounds: &Rounds<R>) -> bool {
        let changed = async {
            // No change goes to the kernel before the pause is over.
            sleep_until(rounds.not_before).await;
            progress
                .wait_for(|p| p.generation != rounds.generation)
                .await
                .map(|_| ())
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            _ = changed => true,
            () = sleep_until(rounds.at_latest) => true,
        }
    }
}

/// Failures are loud at first and when they last; retries in between are not.
fn log_failure(backend: &'static str, failure: &BackendError, failures: u32) {
    let error = Chain(failure);
    if failure.retry() == Retry::Never {
        error!(backend, %error, "Cannot program Services, an operator must act");
    } else {
        warn!(backend, %error, failures, "Cannot program Services, trying again");
    }
}

/// What one round leaves for the next.
struct Rounds<R> {
    timing: Timing,
    backoff: ExponentialBackoff,
    skips: Skips,
    /// What the kernel holds, as long as that is known.
    have: Option<R>,
    /// The last generation that a round has covered.
    generation: u64,
    /// Whether a good round has covered all that is known, so that a
    /// difference is somebody else's doing.
    nothing_new: bool,
    failures: u32,
    last: Duration,
    read_back_at: Instant,
    not_before: Instant,
    at_latest: Instant,
}

impl<R> Rounds<R> {
    fn new(timing: Timing) -> Self {
        let now = Instant::now();
        Self {
            timing,
            backoff: timing.backoff(),
            skips: Skips::default(),
            have: None,
            generation: u64::MAX,
            nothing_new: false,
            failures: 0,
            last: Duration::ZERO,
            read_back_at: now,
            not_before: now,
            at_latest: now,
        }
    }

    fn read_back_due(&self, now: Instant) -> bool {
        now >= self.read_back_at
    }

    fn begun(&mut self, generation: u64) {
        self.nothing_new = self.failures == 0 && self.generation == generation;
        self.generation = generation;
    }

    fn took(&mut self, full: bool, elapsed: Duration) {
        self.last = elapsed;
        if full {
            let pause = (elapsed * 100).clamp(self.timing.read_back_min, self.timing.read_back_max);
            self.read_back_at = Instant::now() + pause;
        }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.backoff = self.timing.backoff();
        let pause = self
            .last
            .clamp(self.timing.pause_min, self.timing.pause_max);
        self.not_before = Instant::now() + pause;
        self.at_latest = self.read_back_at.max(self.not_before);
    }

    fn failed(&mut self, retry: Retry) {
        self.failures += 1;
        let pause = match retry {
            Retry::Now if self.failures <= HASTE => self.timing.pause_min,
            Retry::Never => self.timing.retry_max,
            _ => self.backoff.next().unwrap_or(self.timing.retry_max),
        };
        let now = Instant::now();
        // A change may be what helps, so it is not made to wait as long.
        self.not_before = now + self.timing.pause_max.min(pause);
        self.at_latest = now + pause;
    }
}
