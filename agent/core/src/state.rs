//! What the agent itself remembers about one pod, beside its spec and what the
//! runtime shows: work in progress, failures and probe results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::backoff::Backoff;
use crate::step::{Action, Operation};

/// Why a pod does not get to run on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The platform's reason: `OutOfcpu`, `PodFeatureUnsupported`.
    pub reason: &'static str,
    /// One sentence for a person.
    pub message: String,
}

/// Why the newest attempt to start a container failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Waiting reason: `ErrImagePull`, `CreateContainerConfigError`.
    pub reason: &'static str,
    /// For a person.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// The pod's owner was told that it waits.
    pub announced: bool,
}

/// Results of the probes of one container instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeState {
    /// Readiness; `None` before the first result.
    pub ready: Option<bool>,
    /// Startup; `None` before the first result.
    pub started: Option<bool>,
    /// The instance must go: the probe's name (`liveness`, `startup`).
    pub failed: Option<&'static str>,
}

/// Conditions that nobody but the agent writes.
const OWN_CONDITIONS: [&str; 4] = [
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
];

/// An operation that failed is not tried again before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    until: Timestamp,
    delay: Duration,
}

/// Delay after the first failure of an operation.
const HOLD_INITIAL: Duration = Duration::from_secs(1);
/// Longest delay between attempts; kubelet retries a failed sync after 10 s.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// The agent's memory of one pod.
#[derive(Clone, Debug)]
pub struct PodState {
    /// The pod was not admitted.
    pub rejected: Option<Rejection>,
    /// When this node first dealt with the pod; never changes.
    pub start_time: Timestamp,
    /// The pod vanished from its source.
    pub gone: bool,
    /// The node can connect pods.
    pub network_ready: bool,
    /// Volumes are in place.
    pub volumes_ready: bool,
    /// Everything outside the runtime is cleaned up, except for the logs.
    pub torn_down: bool,
    /// So are the logs.
    pub logs_removed: bool,
    /// The source knows that the pod has ended.
    pub finished: bool,
    /// The status as the source showed it last.
    pub api_status: PodStatus,
    /// Newest failure by container name.
    pub failures: BTreeMap<String, StartFailure>,
    /// Restarts, by container name and image.
    pub crashes: Backoff,
    /// Pulls, by image.
    pub pulls: Backoff,
    /// By container id.
    pub probes: BTreeMap<String, ProbeState>,
    /// Sandboxes whose stop has succeeded.
    pub stopped_sandboxes: BTreeSet<String>,
    in_flight: BTreeSet<Operation>,
    holds: BTreeMap<Operation, Hold>,
}

impl PodState {
    /// A pod that is new to this agent; what an earlier agent published about it is
    /// taken over, so that readiness and start time survive a restart.
    pub fn new(pod: &Pod, now: Timestamp) -> Self {
        let api_status = pod.status.clone().unwrap_or_default();
        let probes = api_status
            .container_statuses
            .iter()
            .chain(&api_status.init_container_statuses)
            .flatten()
            .filter_map(|status| {
                status.state.as_ref()?.running.as_ref()?;
                let (_, id) = status.container_id.as_deref()?.split_once("://")?;
                let known = ProbeState {
                    ready: Some(status.ready),
                    started: status.started,
                    failed: None,
                };
                Some((id.to_owned(), known))
            })
            .collect();
        Self {
            rejected: None,
            start_time: api_status.start_time.as_ref().map_or(now, |time| time.0),
            gone: false,
            network_ready: false,
            volumes_ready: false,
            torn_down: false,
            logs_removed: false,
            finished: false,
            api_status,
            failures: BTreeMap::new(),
            crashes: Backoff::default(),
            pulls: Backoff::default(),
            probes,
            stopped_sandboxes: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            holds: BTreeMap::new(),
        }
    }

    /// Takes in what the source shows now: what belongs to others, and an end that
    /// others decided. What is ours stays as it was computed last, so that an old
    /// echo of our own writes changes nothing.
    pub fn absorb(&mut self, published: &PodStatus) {
        let ours = std::mem::take(&mut self.api_status);
        if ours == PodStatus::default() {
            self.api_status = published.clone();
            return;
        }
        let is_ended = matches!(published.phase.as_deref(), Some("Failed" | "Succeeded"));
        let (phase, reason, message) = if is_ended {
            (
                published.phase.clone(),
                published.reason.clone(),
                published.message.clone(),
            )
        } else {
            (ours.phase, ours.reason, ours.message)
        };
        let is_ours = |kind: &str| OWN_CONDITIONS.contains(&kind);
        let own = ours
            .conditions
            .into_iter()
            .flatten()
            .filter(|c| is_ours(&c.type_));
        let foreign = published
            .conditions
            .iter()
            .flatten()
            .filter(|c| !is_ours(&c.type_));
        self.api_status = PodStatus {
            phase,
            reason,
            message,
            conditions: Some(own.chain(foreign.cloned()).collect()),
            nominated_node_name: published.nominated_node_name.clone(),
            qos_class: published.qos_class.clone().or(ours.qos_class),
            resource_claim_statuses: published.resource_claim_statuses.clone(),
            ..ours
        };
    }

    /// Work that was begun and has not ended.
    pub fn in_flight(&self) -> &BTreeSet<Operation> {
        &self.in_flight
    }

    /// A start of this container is under way.
    pub fn is_starting(&self, name: &str) -> bool {
        self.in_flight
            .iter()
            .any(|operation| matches!(operation, Operation::Start(n) if n == name))
    }

    /// Until when an operation has to wait after a failure.
    pub fn held_until(&self, operation: &Operation, now: Timestamp) -> Option<Timestamp> {
        self.holds
            .get(operation)
            .map(|hold| hold.until)
            .filter(|until| *until > now)
    }

    /// Notes that `action` was begun.
    pub fn begin(&mut self, pod: &Pod, action: &Action, now: Timestamp) {
        self.in_flight.insert(action.operation());
        if let Action::StartContainer {
            name,
            restart: true,
            ..
        } = action
        {
            self.crashes.next(&crash_key(pod, name), now);
        }
    }

    /// Notes that an operation ended well.
    pub fn succeed(&mut self, operation: &Operation) {
        self.in_flight.remove(operation);
        self.holds.remove(operation);
        match operation {
            Operation::Volumes => self.volumes_ready = true,
            Operation::StopSandbox(id) => {
                self.stopped_sandboxes.insert(id.clone());
            }
            Operation::RemoveSandbox(id) => {
                self.stopped_sandboxes.remove(id);
            }
            Operation::Start(name) => {
                self.failures.remove(name);
            }
            Operation::Teardown => self.torn_down = true,
            Operation::RemoveLogs => self.logs_removed = true,
            Operation::Finish => self.finished = true,
            Operation::Sandbox | Operation::Stop { .. } | Operation::Remove(_) => {}
        }
    }

    /// Notes that an operation failed and has to wait, longer each time.
    pub fn fail(&mut self, operation: &Operation, now: Timestamp) {
        self.in_flight.remove(operation);
        let delay = self
            .holds
            .get(operation)
            .map_or(HOLD_INITIAL, |hold| (hold.delay * 2).min(HOLD_MAX));
        self.holds.insert(
            operation.clone(),
            Hold {
                until: now + delay,
                delay,
            },
        );
    }

    /// Notes that starting a container failed. Pull failures wait by the image's
    /// own back-off.
    pub fn fail_start(&mut self, pod: &Pod, name: &str, failure: StartFailure) {
        let now = failure.at;
        let operation = Operation::Start(name.to_owned());
        self.fail(&operation, now);
        if failure.reason == "ErrImagePull" {
            let key = image_key(pod, name);
            self.pulls.next(&key, now);
            let delay = self.pulls.delay(&key);
            self.holds.insert(
                operation,
                Hold {
                    until: now + delay,
                    delay,
                },
            );
        }
        self.failures.insert(name.to_owned(), failure);
    }

    /// Notes that an operation was given up on purpose.
    pub fn abandon(&mut self, operation: &Operation) {
        self.in_flight.remove(operation);
    }
}

/// What restarts are counted by: a new image starts afresh.
pub fn crash_key(pod: &Pod, container: &str) -> String {
    format!("{container}={}", image_key(pod, container))
}

fn image_key(pod: &Pod, container: &str) -> String {
    crate::spec::container(pod, container)
        .and_then(|c| c.image.clone())
        .unwrap_or_default()
}
