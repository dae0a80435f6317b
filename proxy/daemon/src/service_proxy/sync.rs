//! When to make the kernel match: the timer around [`sync_once`].

use std::sync::Arc;
use std::time::Duration;

use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::{fingerprint, sync_once};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::node;
use super::rounds::Rounds;
pub(crate) use super::rounds::Timing;
use super::{Feed, Progress};
use crate::chain::Chain;
use crate::config::ServicesConfig;
use crate::explain::{self, Desk, Facts, GoodRound, Question};
use crate::health::{self, Health};
use crate::health_checks::Wanted;
use crate::metrics::{Metrics, Round};

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
    /// Where people ask.
    pub(crate) desk: Desk,
    pub(crate) stop: CancellationToken,
}

/// Why a wait is over.
#[derive(Debug)]
enum Wake {
    Stop,
    Round,
    Asked(Question),
    /// Somebody else may have changed what is ours.
    Disturbed,
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
        let mut rounds = Rounds::new(self.timing, &self.node_name);
        let mut asked = None;
        loop {
            // Seen before the model is read: what comes later starts another round.
            let generation = progress.borrow_and_update().generation;
            for &family in backend.families() {
                self.health.queued(health::services(family), Instant::now());
            }
            rounds.begun(generation);
            match self.round(&mut backend, &mut rounds).await {
                Ok(()) => rounds.succeeded(),
                Err(retry) => rounds.failed(retry),
            }
            loop {
                if let Some(question) = asked.take()
                    && self.answer(question, &mut backend, &rounds).await
                {
                    // Of some things nothing but such a question tells, as of a set.
                    rounds.differs();
                }
                match self.wait(&mut progress, &rounds, &mut backend).await {
                    Wake::Stop => return,
                    Wake::Round => break,
                    Wake::Disturbed => {
                        rounds.disturbed();
                        continue;
                    }
                    Wake::Asked(question) => asked = Some(question),
                }
                // What is known must be in the kernel before anybody compares.
                let pending = progress.borrow().generation != rounds.generation;
                if pending && rounds.failures == 0 {
                    break;
                }
            }
        }
    }

    /// Says what an address is; nothing changes meanwhile. Tells whether the kernel is not as
    /// it should be.
    async fn answer<B: Backend>(
        &self,
        question: Question,
        backend: &mut B,
        rounds: &Rounds<B::Rendered>,
    ) -> bool {
        let (target, from) = (question.target, question.from);
        let desired = rounds.compiler.desired();
        let own = self.feed.node();
        let report = explain::inspect(backend, desired, target)
            .await
            .map(|kernel| {
                let model = self.feed.model();
                let mut skipped = rounds.compiler.skipped(&model);
                skipped.extend(backend.unsupported(desired));
                let facts = Facts {
                    model: &model,
                    node: &node::of(&self.node_name, own.clone(), &self.config),
                    desired,
                    skipped: &skipped,
                    own_pods: &own.unwrap_or_default().pod_cidrs,
                    all_pods: &self.desk.all_pods,
                };
                explain::report(&facts, kernel, target, from, true)
            });
        let differs = report.as_ref().is_ok_and(|report| !report.agree);
        question.answer(report);
        differs
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
        let mut triggers = Some(self.feed.triggers());
        let wanted = self.compile(backend, rounds);
        // Not kept beside what is read, which is as large.
        let (have, believed) = if rounds.read_back_due(started) {
            (None, rounds.have.take().as_ref().map(fingerprint))
        } else {
            (rounds.have.take(), None)
        };
        let full = have.is_none();
        let desired = rounds.compiler.desired();
        let result = sync_once(backend, have, desired).await;
        let elapsed = started.elapsed();
        self.ended(full, elapsed, backend.families(), result.as_ref().err());
        let report = result.map_err(|error| {
            self.feed.not_programmed(triggers.take());
            // What is known of the kernel has been taken above, so the next round reads it back.
            log_failure(backend.name(), &error, rounds.failures);
            self.desk.failed(backend, &error);
            error.retry()
        })?;
        self.metrics.service_changes.applied(services);
        self.metrics.endpoint_changes.applied(endpoints);
        for (family, trigger) in triggers.take().unwrap_or_default() {
            self.metrics.programmed(family, trigger);
        }
        self.metrics.rules(&report.counts);
        self.metrics.settled(&report.settled);
        self.metrics.synced(desired, backend.families());
        self.tell_load_balancers(wanted);
        let drift = match believed {
            Some(_) => report.found != believed,
            // After a failure, which may be what somebody else's change has led to.
            None => full && rounds.is_disturbed() && report.changed,
        };
        let repaired = drift && report.changed;
        let looked = full && rounds.is_disturbed();
        self.metrics.drift.looked(looked, repaired);
        let round = GoodRound {
            desired,
            skipped: rounds.skipped,
            repaired,
        };
        self.desk.succeeded(backend, &round);
        let watched = backend.is_watched();
        let (backend, services) = (backend.name(), desired.service_ports());
        rounds.have = Some(report.rendered);
        rounds.took(full.then_some(drift), elapsed, watched);
        if !self.synced.send_replace(true) {
            info!(backend, services, ?elapsed, "Programmed all Services");
        } else if repaired {
            let rules: usize = report.counts.iter().map(|count| count.written).sum();
            warn!(
                backend,
                rules,
                ?elapsed,
                "Repaired what somebody else had changed"
            );
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

    /// A family in which all went well is as fresh as if all had.
    fn ended(&self, full: bool, took: Duration, families: &[Family], error: Option<&BackendError>) {
        let failed: Vec<Family> = match error.map(BackendError::family) {
            None => Vec::new(),
            Some(Some(only)) => vec![only],
            Some(None) => families.to_vec(),
        };
        for &family in families.iter().filter(|family| !failed.contains(family)) {
            self.health.updated(health::services(family));
        }
        self.metrics.sync_ended(&Round {
            full,
            took,
            families,
            failed: &failed,
        });
    }

    fn tell_load_balancers(&self, wanted: Wanted) {
        self.health_checks.send_if_modified(|known| {
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
    }

    /// Brings the desired state up to what is known now. Gives what load balancers may be told
    /// when that is in the kernel.
    fn compile<B: Backend>(&self, backend: &B, rounds: &mut Rounds<B::Rendered>) -> Wanted {
        let node = node::of(&self.node_name, self.feed.node(), &self.config);
        let mut skipped = {
            let mut model = self.feed.model();
            rounds.compiler.update(&mut model, &node);
            rounds.compiler.skipped(&model)
        };
        let desired = rounds.compiler.desired();
        let unsupported = backend.unsupported(desired);
        let wanted = Wanted::of(desired, backend.families(), &unsupported);
        skipped.extend(unsupported);
        let skipped = rounds.skips.report(skipped);
        rounds.skipped = skipped;
        self.metrics
            .skipped
            .set(i64::try_from(skipped).unwrap_or(i64::MAX));
        wanted
    }

    /// Until the next round is due, or somebody asks.
    async fn wait<B: Backend>(
        &self,
        progress: &mut watch::Receiver<Progress>,
        rounds: &Rounds<B::Rendered>,
        backend: &mut B,
    ) -> Wake {
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
            () = self.stop.cancelled() => Wake::Stop,
            _ = changed => Wake::Round,
            () = sleep_until(rounds.at_latest) => Wake::Round,
            () = backend.disturbed(), if !rounds.is_disturbed() => Wake::Disturbed,
            question = self.desk.asked() => Wake::Asked(question),
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
