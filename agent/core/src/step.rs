//! The heart: what to do next for one pod.
//!
//! ```text
//! spec ─┐
//! state ─┼─► step ─► actions that may be begun now, and when to look again
//! observed ─┘
//! ```
//! Called after every change; it must be safe to call at any time. Work in
//! progress is never begun twice, failed work waits.

mod sync;
mod terminate;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::observed::{Observed, RunState};
use crate::spec;
use crate::state::PodState;

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends.
    PodEnds,
    /// A probe said so: `liveness` or `startup`.
    ProbeFailed(&'static str),
    /// The spec now has another image.
    Changed,
}

/// One piece of work outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put every volume in place.
    PrepareVolumes,
    /// Create and start the sandbox.
    CreateSandbox {
        /// How many there were before.
        attempt: u32,
    },
    /// Stop a sandbox and release its network.
    StopSandbox {
        /// Which.
        id: String,
    },
    /// Remove a sandbox and its containers.
    RemoveSandbox {
        /// Which.
        id: String,
    },
    /// Pull, create and start a container.
    StartContainer {
        /// Which.
        name: String,
        /// How often it was started before.
        attempt: u32,
        /// Where.
        sandbox_id: String,
        /// An earlier instance ended; this start counts towards the back-off.
        restart: bool,
    },
    /// Stop a container.
    StopContainer {
        /// Which instance.
        id: String,
        /// Which container.
        name: String,
        /// From the stop signal to the kill.
        grace: Duration,
        /// Why.
        reason: StopReason,
    },
    /// Remove a container that is not running.
    RemoveContainer {
        /// Which instance.
        id: String,
    },
    /// Take down volumes, files and cgroups.
    Teardown,
    /// Remove the logs, which stay for as long as the object does.
    RemoveLogs,
    /// Publish the last status and let the object go.
    Finish,
}

/// The identity of an action: one of each at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named after the actions above")]
pub enum Operation {
    Volumes,
    Sandbox,
    StopSandbox(String),
    RemoveSandbox(String),
    Start(String),
    Stop { id: String, grace: Duration },
    Remove(String),
    Teardown,
    RemoveLogs,
    Finish,
}

impl Action {
    /// The action's identity.
    pub fn operation(&self) -> Operation {
        match self {
            Self::PrepareVolumes => Operation::Volumes,
            Self::CreateSandbox { .. } => Operation::Sandbox,
            Self::StopSandbox { id } => Operation::StopSandbox(id.clone()),
            Self::RemoveSandbox { id } => Operation::RemoveSandbox(id.clone()),
            Self::StartContainer { name, .. } => Operation::Start(name.clone()),
            Self::StopContainer { id, grace, .. } => Operation::Stop {
                id: id.clone(),
                grace: *grace,
            },
            Self::RemoveContainer { id } => Operation::Remove(id.clone()),
            Self::Teardown => Operation::Teardown,
            Self::RemoveLogs => Operation::RemoveLogs,
            Self::Finish => Operation::Finish,
        }
    }
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be begun now, in this order, side by side.
    pub actions: Vec<Action>,
    /// When to ask again, if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// Containers whose restart waits for the back-off.
    pub backing_off: Vec<String>,
    /// The pod waits for the node's network.
    pub waits_for_network: bool,
    /// The pod has ended and nothing of it runs: the status is final.
    pub ended: bool,
    /// The pod ends: what can be cancelled should be.
    pub terminating: bool,
}

/// Why a pod's containers must not run (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Never admitted.
    Rejected,
    /// Deleted, or vanished from its source.
    Removed,
    /// `activeDeadlineSeconds` is over.
    Deadline,
    /// All containers have ended for good, or the source says so.
    Finished,
}

/// Whether and why the pod ends.
pub fn end(pod: &Pod, state: &PodState, observed: &Observed, now: Timestamp) -> Option<End> {
    if state.gone || spec::is_deleted(pod) {
        return Some(End::Removed);
    }
    if state.rejected.is_some() {
        return Some(End::Rejected);
    }
    let phase = state.api_status.phase.as_deref();
    if matches!(phase, Some("Failed" | "Succeeded")) {
        return Some(End::Finished);
    }
    if deadline(pod, state).is_some_and(|deadline| deadline <= now) {
        return Some(End::Deadline);
    }
    has_finished(pod, observed).then_some(End::Finished)
}

/// When `activeDeadlineSeconds` is over.
pub fn deadline(pod: &Pod, state: &PodState) -> Option<Timestamp> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    Some(state.start_time + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether every container has ended and none is to be started again.
fn has_finished(pod: &Pod, observed: &Observed) -> bool {
    let policy = spec::restart_policy(pod);
    let init_failed = spec::init_containers(pod).iter().any(|container| {
        observed.latest(&container.name).is_some_and(|c| {
            c.state == RunState::Exited && c.exit_code != 0 && !policy.restarts_init(c.exit_code)
        })
    });
    let apps = spec::containers(pod);
    let apps_over = !apps.is_empty()
        && apps.iter().all(|container| {
            observed
                .latest(&container.name)
                .is_some_and(|c| c.state == RunState::Exited && !policy.restarts(c.exit_code))
        });
    init_failed || apps_over
}

/// What to do now for one pod.
pub fn step(pod: &Pod, state: &PodState, observed: &Observed, now: Timestamp) -> Plan {
    let mut planner = Planner {
        pod,
        state,
        observed,
        now,
        plan: Plan::default(),
    };
    if let Some(end) = end(pod, state, observed, now) {
        planner.terminate(end);
    } else {
        planner.sync();
        if let Some(deadline) = deadline(pod, state) {
            planner.wake(deadline);
        }
    }
    planner.plan
}

struct Planner<'a> {
    pod: &'a Pod,
    state: &'a PodState,
    observed: &'a Observed,
    now: Timestamp,
    plan: Plan,
}

impl Planner<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Begins `action` unless it runs already or has to wait.
    fn push(&mut self, action: Action) {
        let operation = action.operation();
        if self.state.in_flight().contains(&operation) {
            return;
        }
        match self.state.held_until(&operation, self.now) {
            Some(until) => self.wake(until),
            None => self.plan.actions.push(action),
        }
    }

    /// Stops a container, unless a stop with at most this grace is under way.
    fn stop(&mut self, id: &str, name: &str, grace: Duration, reason: StopReason) {
        let under_way = self.state.in_flight().iter().any(|operation| {
            matches!(operation, Operation::Stop { id: other, grace: g } if other == id && *g <= grace)
        });
        if !under_way {
            let (id, name) = (id.to_owned(), name.to_owned());
            self.push(Action::StopContainer {
                id,
                name,
                grace,
                reason,
            });
        }
    }
}
