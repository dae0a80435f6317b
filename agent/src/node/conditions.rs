//! The Node's conditions: pressure, and whether it is ready.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use seaway_agent_core::eviction::EvictionHard;

use super::facts::Facts;
use crate::runtime_status::RuntimeStatus;

/// Pressure is reported for this long after it has passed, so that the scheduler does
/// not send the next pod into the same trouble: `evictionPressureTransitionPeriod`.
const TRANSITION_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// Which resources are short, or were lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk space or inodes.
    pub disk: bool,
}

/// Remembers when resources were last short.
#[derive(Clone, Copy, Debug, Default)]
pub struct PressureMemory {
    memory: Option<Timestamp>,
    disk: Option<Timestamp>,
}

impl PressureMemory {
    /// Takes note of `facts`, of which `kept` has to be free, and says what to report.
    pub fn observe(&mut self, facts: &Facts, kept: EvictionHard, now: Timestamp) -> Pressure {
        if facts.memory_available_bytes < kept.memory.of(facts.memory_bytes) {
            self.memory = Some(now);
        }
        let space = facts.disk_available_bytes < kept.disk.of(facts.disk_bytes);
        let inodes = facts.inodes_available < kept.inodes.of(facts.inodes);
        if space || inodes {
            self.disk = Some(now);
        }
        let recent =
            |at: Option<Timestamp>| at.is_some_and(|at| now.duration_since(at) < TRANSITION_PERIOD);
        Pressure {
            memory: recent(self.memory),
            disk: recent(self.disk),
        }
    }
}

/// The four conditions in kubelet's order, Ready last. The time of the last transition
/// is taken from `previous` where the status is still the same.
pub(super) fn conditions(
    runtime: &RuntimeStatus,
    pressure: Pressure,
    previous: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    [
        choose(
            "MemoryPressure",
            pressure.memory,
            [
                (
                    "KubeletHasInsufficientMemory",
                    "kubelet has insufficient memory available",
                ),
                (
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
            ],
        ),
        choose(
            "DiskPressure",
            pressure.disk,
            [
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ],
        ),
        choose(
            "PIDPressure",
            false,
            [
                (
                    "KubeletHasInsufficientPID",
                    "kubelet has insufficient PID available",
                ),
                (
                    "KubeletHasSufficientPID",
                    "kubelet has sufficient PID available",
                ),
            ],
        ),
        ready(runtime),
    ]
    .into_iter()
    .map(|condition| with_times(condition, previous, now))
    .collect()
}

fn choose(type_: &str, status: bool, texts: [(&str, &str); 2]) -> NodeCondition {
    let (reason, message) = if status { texts[0] } else { texts[1] };
    NodeCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..NodeCondition::default()
    }
}

fn ready(runtime: &RuntimeStatus) -> NodeCondition {
    let all = runtime.all_ready();
    let why = not_ready_message(runtime);
    choose(
        "Ready",
        all,
        [
            ("KubeletReady", "kubelet is posting ready status"),
            ("KubeletNotReady", &why),
        ],
    )
}

fn not_ready_message(runtime: &RuntimeStatus) -> String {
    let what = if runtime.ready {
        "container runtime network not ready"
    } else {
        "container runtime not ready"
    };
    if runtime.message.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {}", runtime.message)
    }
}

fn with_times(
    mut condition: NodeCondition,
    previous: &[NodeCondition],
    now: Timestamp,
) -> NodeCondition {
    let before = previous
        .iter()
        .find(|before| before.type_ == condition.type_ && before.status == condition.status)
        .and_then(|before| before.last_transition_time.clone());
    // The API has whole seconds; with fractions an unchanged time would look changed.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    condition.last_heartbeat_time = Some(Time(now));
    condition.last_transition_time = Some(before.unwrap_or(Time(now)));
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn runtime(ready: bool, network_ready: bool, message: &str) -> RuntimeStatus {
        RuntimeStatus {
            ready,
            network_ready,
            message: message.into(),
            ..RuntimeStatus::default()
        }
    }

    #[track_caller]
    fn check_ready(runtime: &RuntimeStatus, status: &str, reason: &str, message: &str) {
        let all = conditions(runtime, Pressure::default(), &[], at(1));
        let ready = all.last().unwrap();
        assert_eq!(ready.type_, "Ready");
        assert_eq!(ready.status, status);
        assert_eq!(ready.reason.as_deref(), Some(reason));
        assert_eq!(ready.message.as_deref(), Some(message));
    }

    #[test]
    fn ready_only_with_runtime_and_network() {
        check_ready(
            &runtime(true, true, ""),
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        );
        check_ready(
            &runtime(true, false, "cni config uninitialized"),
            "False",
            "KubeletNotReady",
            "container runtime network not ready: cni config uninitialized",
        );
        check_ready(
            &runtime(false, false, "connect to /c.sock"),
            "False",
            "KubeletNotReady",
            "container runtime not ready: connect to /c.sock",
        );
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = conditions(&runtime(true, true, ""), Pressure::default(), &[], at(1));
        let same = conditions(&runtime(true, true, ""), Pressure::default(), &first, at(2));
        let other = conditions(&runtime(false, true, ""), Pressure::default(), &same, at(3));
        let time = |all: &[NodeCondition]| all[3].last_transition_time.clone().unwrap().0;
        assert_eq!(
            (time(&first), time(&same), time(&other)),
            (at(1), at(1), at(3))
        );
        assert_eq!(same[3].last_heartbeat_time.clone().unwrap().0, at(2));
        assert_eq!(time(&other[..]), at(3));
        assert_eq!(other[0].last_transition_time.clone().unwrap().0, at(1));
    }

    #[test]
    fn pressure_is_held_for_five_minutes() {
        let fine = Facts {
            memory_available_bytes: 1 << 30,
            disk_bytes: 1000,
            disk_available_bytes: 500,
            inodes: 1000,
            inodes_available: 500,
            ..Facts::default()
        };
        let kept = EvictionHard::default();
        let mut memory = PressureMemory::default();
        assert_eq!(memory.observe(&fine, kept, at(0)), Pressure::default());
        let short = Facts {
            memory_available_bytes: 1,
            ..fine.clone()
        };
        assert!(memory.observe(&short, kept, at(10)).memory);
        assert!(memory.observe(&fine, kept, at(10 + 299)).memory);
        assert!(!memory.observe(&fine, kept, at(10 + 300)).memory);
        let no_inodes = Facts {
            inodes_available: 10,
            ..fine.clone()
        };
        assert!(memory.observe(&no_inodes, kept, at(400)).disk);
        let full = Facts {
            disk_available_bytes: 99,
            ..fine
        };
        assert!(PressureMemory::default().observe(&full, kept, at(400)).disk);
    }

    #[test]
    fn pressure_begins_where_the_operator_says() {
        let facts = Facts {
            memory_bytes: 1000 << 20,
            memory_available_bytes: 150 << 20,
            disk_bytes: 1000,
            disk_available_bytes: 50,
            inodes: 1000,
            inodes_available: 20,
            ..Facts::default()
        };
        let observed = |text: &str| {
            let kept = text.parse().unwrap();
            PressureMemory::default().observe(&facts, kept, at(0))
        };
        let pressure = |memory, disk| Pressure { memory, disk };
        assert_eq!(observed(""), pressure(false, true));
        let less = "nodefs.available<1%,nodefs.inodesFree<10";
        assert_eq!(observed(less), pressure(false, false));
        assert_eq!(
            observed("memory.available<20%,nodefs.available<0"),
            pressure(true, true)
        );
        assert_eq!(
            observed("nodefs.available<0,nodefs.inodesFree<0"),
            pressure(false, false)
        );
    }
}
