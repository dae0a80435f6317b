//! One pod's loop: look, decide, report, act, wait.

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
use seaway_agent_core::status::status;
use seaway_agent_core::step::{self, Action, Operation, Plan};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::observe::Observer;
use super::operations::{Context, Outcome};
use super::probes::{ProbeResult, Probes};
use super::publish::publish;
use super::{Shared, View, chain};
use crate::objects::EventType;
use crate::runtime_status::RuntimeStatus;

/// How soon a runtime that does not answer is asked again.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// How often config volumes and tokens are brought up to date; kubelet's period.
const VOLUME_REFRESH: Duration = Duration::from_mins(1);
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

    /// Computes the status, shows it to everybody, and tells of back-offs.
    async fn report(&mut self, plan: &Plan, now: Timestamp) {
        if self.final_status.is_none() {
            let facts = self.shared.facts();
            let status = status(&self.pod, &self.state, &self.observed, &facts, now);
            self.state.api_status = status.clone();
            if plan.ended {
                // From here on the runtime forgets; what is known now is the last word.
                self.final_status = Some(status.clone());
            }
            let changed = self.statuses.borrow().as_ref() != Some(&status);
            let published = self.desired.borrow().pod.status.as_ref() == Some(&status);
            if changed && !self.state.gone {
                // The first status is not written where the source has it already.
                let silent = published && self.statuses.borrow().is_none();
                if silent {
                    self.statuses.send_if_modified(|slot| {
                        *slot = Some(status.clone());
                        false
                    });
                } else {
                    self.statuses.send_replace(Some(status.clone()));
                }
            }
            self.pod.status = Some(status);
        } else {
            self.pod.status.clone_from(&self.final_status);
        }
        if self.reconcile_at.is_some_and(|at| at <= Instant::now()) && !self.state.gone {
            self.reconcile_at = None;
            let status = self.pod.status.clone();
            self.statuses.send_replace(status);
        }
        let view = View {
            pod: self.pod.clone(),
            observed: self.observed.clone(),
        };
        let uid = spec::uid(&self.pod).to_owned();
        self.shared.write_views().insert(uid, view);
        self.announce_back_offs(plan);
        if plan.actions.contains(&Action::Finish) {
            // The last write is the operation's; nothing may come after it.
            self.publisher.shutdown().await;
        }
    }

    fn announce_rejection(&self) {
        if let Some(rejection) = &self.state.rejected {
            let message = format!("Pod was rejected: {}", rejection.message);
            self.shared
                .event(&self.pod, EventType::Warning, rejection.reason, message);
        }
    }

    fn announce_back_offs(&mut self, plan: &Plan) {
        for name in &plan.backing_off {
            let Some(ended) = self.observed.latest(name) else {
                continue;
            };
            if self.announced.insert(ended.id.clone()) {
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}",
                    spec::full_name(&self.pod)
                );
                let warning = EventType::Warning;
                self.shared
                    .container_event(&self.pod, name, warning, "BackOff", message);
            }
        }
        self.announce_failed_pulls();
        let observed = &self.observed;
        self.announced
            .retain(|id| id == "network" || observed.containers.iter().any(|c| c.id == *id));
        // Before the runtime's first answer there is nothing to tell.
        let why = self.runtime.borrow().message.clone();
        let waits = plan.waits_for_network && !why.is_empty();
        if waits && self.announced.insert("network".into()) {
            let message = format!("network is not ready: {why}");
            self.shared
                .event(&self.pod, EventType::Warning, "NetworkNotReady", message);
        }
    }

    /// Tells of pulls that failed and wait, once for each failure.
    fn announce_failed_pulls(&mut self) {
        let now = Timestamp::now();
        let shown = |at: Timestamp| at + Duration::from_secs(2) <= now;
        let failed = self.state.failures.iter();
        let waiting: Vec<String> = failed
            .filter(|(_, f)| f.reason == "ErrImagePull" && shown(f.at))
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            let Some(failure) = self.state.failures.get_mut(&name) else {
                continue;
            };
            if std::mem::replace(&mut failure.announced, true) {
                continue;
            }
            let image = spec::container(&self.pod, &name).and_then(|c| c.image.clone());
            let image = image.unwrap_or_default();
            for (kind, reason, message) in [
                (
                    EventType::Normal,
                    "BackOff",
                    format!("Back-off pulling image \"{image}\""),
                ),
                (
                    EventType::Warning,
                    "Failed",
                    "Error: ImagePullBackOff".to_owned(),
                ),
            ] {
                self.shared
                    .container_event(&self.pod, &name, kind, reason, message);
            }
        }
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

    /// Waits for something to happen; whether the runtime must be looked at again.
    async fn wait(&mut self, wake_at: Option<Timestamp>) -> bool {
        let now = Instant::now();
        let planned = wake_at.map(|at| {
            let left = at.duration_since(Timestamp::now());
            // A little later than the moment itself, so that it has surely passed.
            now + left.unsigned_abs().saturating_add(Duration::from_millis(5))
        });
        let refresh = self.refresh_at();
        let timer = [planned, refresh, self.reconcile_at, self.error_shown_at()];
        let timer = timer.into_iter().flatten().min();
        tokio::select! {
            Some(ended) = self.operations.join_next() => {
                match ended {
                    Ok((operation, outcome)) => self.ended(&operation, outcome),
                    Err(error) => warn!(pod = %spec::key(&self.pod), %error, "Operation broke off"),
                }
                true
            }
            changed = self.desired.changed() => {
                if changed.is_err() {
                    // The manager is gone: the agent ends, the pod runs on.
                    std::future::pending::<()>().await;
                }
                false
            }
            () = self.wake.notified() => true,
            result = self.probes.next() => {
                self.note(&result);
                false
            }
            Ok(()) = self.runtime.changed() => false,
            () = sleep_until(timer) => {
                self.refresh_volumes();
                false
            }
        }
    }

    /// When a failed pull turns into a back-off, which people see.
    fn error_shown_at(&self) -> Option<Instant> {
        let newest = self
            .state
            .failures
            .values()
            .filter(|f| f.reason == "ErrImagePull");
        let at = newest.map(|f| f.at + Duration::from_secs(2)).max()?;
        let left = at.duration_since(Timestamp::now());
        left.is_positive()
            .then(|| Instant::now() + left.unsigned_abs() + Duration::from_millis(5))
    }

    fn refresh_at(&self) -> Option<Instant> {
        let runs =
            self.state.volumes_ready && !self.volumes.is_empty() && !self.cancel.is_cancelled();
        runs.then(|| self.refreshed + VOLUME_REFRESH)
    }

    /// Brings config volumes and tokens up to date, beside the loop.
    fn refresh_volumes(&mut self) {
        if self.refresh_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.refreshed = Instant::now();
        let busy = self.state.in_flight().contains(&Operation::Volumes);
        if !busy {
            let plan = Plan {
                actions: vec![Action::PrepareVolumes],
                ..Plan::default()
            };
            self.begin(&plan, Timestamp::now());
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

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
