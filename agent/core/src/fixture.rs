//! Pods and runtime states in few words, for tests.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::observed::{Instance, Observed, RunState, Sandbox};
use crate::spec;
use crate::state::PodState;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A pod with one app container `c`, overlaid with `extra` fields of the spec.
pub(crate) fn pod(extra: Value) -> Pod {
    let mut spec = json!({"containers": [{"name": "c", "image": "i:1"}], "nodeName": "n"});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 3},
        "spec": spec
    }))
    .unwrap()
}

pub(crate) fn deleted(pod: Pod, grace: i64) -> Pod {
    let mut pod = pod;
    pod.metadata.deletion_timestamp = Some(at(0).into());
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}

/// A pod with volumes and network in place.
pub(crate) fn state(pod: &Pod) -> PodState {
    let mut state = PodState::new(pod, at(0));
    state.network_ready = true;
    state.volumes_ready = true;
    state
}

pub(crate) fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: id.into(),
        attempt,
        ready,
        created_at: at(i64::from(attempt)),
        ips: if ready {
            vec!["10.0.0.1".into()]
        } else {
            Vec::new()
        },
    }
}

/// An instance `name-attempt` in sandbox `s`, made from `pod`'s spec.
pub(crate) fn instance(pod: &Pod, name: &str, attempt: u32, state: RunState) -> Instance {
    let container = spec::container(pod, name).unwrap();
    Instance {
        id: format!("{name}-{attempt}"),
        sandbox_id: "s".into(),
        name: name.into(),
        attempt,
        state,
        created_at: at(i64::from(attempt)),
        started_at: (state != RunState::Created).then(|| at(10)),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "i:1".into(),
        image_ref: "sha256:1".into(),
        hash: spec::container_hash(container),
        log_path: format!("/logs/{name}/{attempt}.log"),
    }
}

pub(crate) fn running(pod: &Pod, name: &str) -> Instance {
    instance(pod, name, 0, RunState::Running)
}

/// An instance that ended at second 100.
pub(crate) fn exited(pod: &Pod, name: &str, attempt: u32, exit_code: i32) -> Instance {
    let ended = instance(pod, name, attempt, RunState::Exited);
    Instance {
        exit_code,
        finished_at: Some(at(100)),
        ..ended
    }
}

/// These containers in one ready sandbox `s`.
pub(crate) fn observed(containers: Vec<Instance>) -> Observed {
    Observed {
        sandboxes: vec![sandbox("s", 0, true)],
        containers,
    }
}
