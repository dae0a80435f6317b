//! When to make the kernel match: the timer around [`sync_once`](seaway_proxy_core::sync_once).

use std::sync::Arc;
use std::time::Duration;

use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::Family;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::node;
use super::rounds::Rounds;
pub(crate) use super::rounds::Timing;
use super::{Feed, Progress};
use crate::config::ServicesConfig;
use crate::explain::{self, AddressQuestion, Desk, Facts, Look, Question};
use crate::health::Health;
use crate::health_checks::Wanted;
use crate::metrics::Metrics;

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
            if rounds.is_news(generation) {
                self.queue(backend.families().iter().copied());
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
                // What is known must be in the kernel before anybody compares an address.
                let waits = matches!(asked, Some(Question::Address(_)));
                let pending = progress.borrow().generation != rounds.generation;
                if waits && pending && rounds.failures == 0 {
                    break;
                }
            }
        }
    }

    /// Nothing changes meanwhile. Tells whether the kernel is not as it should be.
    async fn answer<B: Backend>(
        &self,
        question: Question,
        backend: &mut B,
        rounds: &Rounds<B::Rendered>,
    ) -> bool {
        match question {
            Question::Address(question) => self.explain(question, backend, rounds).await,
            Question::Kernel(answer) => self.look(answer, backend, rounds).await,
        }
    }

    /// Says whether the kernel is as it should be.
    async fn look<B: Backend>(
        &self,
        answer: oneshot::Sender<Look>,
        backend: &mut B,
        rounds: &Rounds<B::Rendered>,
    ) -> bool {
        // Who has asked while a round took long may have gone.
        if answer.is_closed() {
            return false;
        }
        // Of a change of this Node nothing but this tells.
        let pending = self.feed.progress().borrow().generation != rounds.generation;
        let look = if pending {
            Look::unknown("changes are pending")
        } else {
            explain::look(backend, rounds.compiler.desired()).await
        };
        let differs = look.agree == Some(false);
        answer.send(look).ok();
        differs
    }

    /// Says what an address is.
    async fn explain<B: Backend>(
        &self,
        question: AddressQuestion,
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

    /// The backend cannot be opened, and is tried again after `pause`. Meanwhile there may be
    /// something to write, and people ask.
    pub(crate) async fn closed(&self, backend: &'static str, why: &BackendError, pause: Duration) {
        self.desk.cannot_begin(backend, why);
        let until = Instant::now() + pause;
        let mut progress = self.feed.progress();
        let mut known = progress.borrow().in_sync();
        loop {
            if known {
                // Whatever the families are.
                self.queue(std::iter::once(Family::V4));
            }
            tokio::select! {
                () = sleep_until(until) => return,
                Ok(_) = progress.wait_for(|p| p.in_sync()), if !known => known = true,
                question = self.desk.asked() => question.refuse(why),
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
