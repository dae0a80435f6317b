//! One pod's loop: look, decide, report, act, wait.

mod report;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use seaway_agent_core::container::MountedVolume;
use seaway_agent_core::observed::Observed;
use seaway_agent_core::probe::ProbeKind;
use seaway_agent_core::spec;
use seaway_agent_core::state::{PodState, Rejection};
use seaway_agent_core::step::{self, Operation, Plan};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::observe::Observer;
use super::operations::{Context, Outcome};
use super::probes::{ProbeResult, Probes};
use super::publish::publish;
use super::{Shared, chain};
use crate::runtime_status::RuntimeStatus;

/// How soon a runtime that does not answer is asked again.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// How long the source may show another status than ours before it is written again.
const RECONCILE: Duration = Duration::from_secs(5);

/// What the manager wants of a worker.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    pub(super) pod: Pod,
    /// The source has the object no more.
    pub(super) gone: bool,
}

/// One pod.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    desired: watch::Receiver<Desired>,
    wake: Arc<Notify>,
    runtime: watch::Receiver<RuntimeStatus>,
    pod: Pod,
    state: PodState,
    observer: Observer,
    observed: Observed,
    volumes: BTreeMap<String, MountedVolume>,
    refreshed: Instant,
    operations: JoinSet<(Operation, Outcome)>,
    cancel: CancellationToken,
    probes: Probes,
    statuses: watch::Sender<Option<PodStatus>>,
    publisher: JoinSet<()>,
    final_status: Option<PodStatus>,
    /// Instances for which the back-off was announced.
    announced: BTreeSet<String>,
    reconcile_at: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        desired: watch::Receiver<Desired>,
        wake: Arc<Notify>,
        rejected: Option<Rejection>,
    ) -> Self {
        let Desired { pod, gone } = desired.borrow().clone();
        let mut state = PodState::new(&pod, Timestamp::now());
        state.gone = gone;
        state.rejected = rejected;
        let observer = Observer::new(shared.cri.clone(), spec::uid(&pod), &shared.config.pods_dir);
        let statuses = watch::Sender::new(None);
        let mut publisher = JoinSet::new();
        publisher.spawn(publish(
            Arc::clone(&shared.objects),
            pod.clone(),
            statuses.subscribe(),
        ));
        Self {
            runtime: shared.runtime.subscribe(),
            shared,
            desired,
            wake,
            pod,
            state,
            observer,
            observed: Observed::default(),
            volumes: BTreeMap::new(),
            refreshed: Instant::now(),
            operations: JoinSet::new(),
            cancel: CancellationToken::new(),
            probes: Probes::new(),
            statuses,
            publisher,
            final_status: None,
            announced: BTreeSet::new(),
            reconcile_at: None,
        }
    }

    /// Runs the pod until nothing of it is left; the pod's UID.
    pub(super) async fn run(mut self) -> String {
        self.announce_rejection();
        let mut stale = true;
        while !self.state.finished {
            self.absorb();
            if stale && let Err(error) = self.look().await {
                debug!(pod = %spec::key(&self.pod), error = %chain(&error), "Runtime does not answer");
                tokio::time::sleep(RUNTIME_RETRY).await;
                continue;
            }
            let now = Timestamp::now();
            let plan = step::step(&self.pod, &self.state, &self.observed, now);
            self.report(&plan, now).await;
            self.probes.sync(
                &self.shared,
                &self.pod,
                &self.observed,
                &self.state,
                plan.terminating,
            );
            if plan.terminating {
                self.cancel.cancel();
            }
            self.begin(&plan, now);
            stale = self.wait(plan.wake_at).await;
        }
        let uid = spec::uid(&self.pod).to_owned();
        self.shared.write_views().remove(&uid);
        uid
    }

    async fn look(&mut self) -> Result<(), seaway_agent_cri::CriError> {
        self.observed = self.observer.observe().await?;
        let observed = &self.observed;
        self.state
            .probes
            .retain(|id, _| observed.containers.iter().any(|c| c.id == *id));
        Ok(())
    }

    /// Takes over what the manager and the runtime's status say now.
    fn absorb(&mut self) {
        let Desired { pod, gone } = self.desired.borrow_and_update().clone();
        if let Some(published) = &pod.status {
            self.state.absorb(published);
            let differs = self
                .statuses
                .borrow()
                .as_ref()
                .is_some_and(|ours| ours != published);
            self.reconcile_at = differs.then(|| {
                self.reconcile_at
                    .unwrap_or_else(|| Instant::now() + RECONCILE)
            });
        }
        self.pod = pod;
        self.state.gone = gone;
        self.state.network_ready = self.runtime.borrow_and_update().network_ready;
    }

    fn begin(&mut self, plan: &Plan, now: Timestamp) {
        for action in &plan.actions {
            debug!(pod = %spec::key(&self.pod), ?action, "Begin");
            self.state.begin(&self.pod, action, now);
            let context = Context {
                shared: Arc::clone(&self.shared),
                pod: self.pod.clone(),
                observed: self.observed.clone(),
                volumes: self.volumes.clone(),
                cancel: self.cancel.clone(),
                has_object: !self.state.gone,
                is_published: self.desired.borrow().pod.status == self.pod.status,
            };
            let action = action.clone();
            self.operations.spawn(async move {
                let outcome = Box::pin(context.run(&action)).await;
                (action.operation(), outcome)
            });
        }
    }

    fn ended(&mut self, operation: &Operation, outcome: Outcome) {
        let now = Timestamp::now();
        debug!(pod = %spec::key(&self.pod), ?operation, "Ended");
        match outcome {
            Outcome::Done => self.state.succeed(operation),
            Outcome::Volumes(volumes) => {
                self.volumes = volumes;
                self.refreshed = Instant::now();
                self.state.succeed(operation);
            }
            Outcome::Failed => self.state.fail(operation, now),
            Outcome::Cancelled => self.state.abandon(operation),
            Outcome::StartFailed(failure) => {
                if let Operation::Start(name) = operation {
                    self.state.fail_start(&self.pod, name, failure);
                }
            }
        }
    }

    fn note(&mut self, result: &ProbeResult) {
        let known = self
            .observed
            .containers
            .iter()
            .any(|c| c.id == result.container_id);
        if !known {
            return;
        }
        let state = self
            .state
            .probes
            .entry(result.container_id.clone())
            .or_default();
        match (result.kind, result.good) {
            (ProbeKind::Readiness, good) => state.ready = Some(good),
            (ProbeKind::Startup, true) => state.started = Some(true),
            (ProbeKind::Liveness, true) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                state.failed = Some(result.kind.name());
            }
        }
    }
}
