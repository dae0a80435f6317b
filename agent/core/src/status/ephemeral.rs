//! Containers that `kubectl debug` adds to a pod that runs already.
//!
//! They are not supported yet. A pod cannot be rejected any more when one is added, so
//! the container itself says so: its status waits, with a message that `kubectl debug`
//! prints, and an event goes with it.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};

use crate::spec;

/// Waiting reason and event reason.
pub const EPHEMERAL_REASON: &str = "EphemeralContainersNotSupported";
/// For a person; the same in status and event.
pub const EPHEMERAL_MESSAGE: &str =
    "ephemeral containers are not supported by this node's agent; the pod runs on without it";

/// What is said about each of them; nothing for a pod without any.
pub(super) fn statuses(pod: &Pod) -> Option<Vec<ContainerStatus>> {
    let statuses: Vec<_> = spec::ephemeral_containers(pod)
        .iter()
        .map(|container| ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: Some(ContainerState {
                waiting: Some(ContainerStateWaiting {
                    reason: Some(EPHEMERAL_REASON.into()),
                    message: Some(EPHEMERAL_MESSAGE.into()),
                }),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        })
        .collect();
    (!statuses.is_empty()).then_some(statuses)
}

/// The containers of which `known`, the pod's status so far, says nothing yet: their
/// owner has to be told, once.
pub fn new_ephemeral<'a>(pod: &'a Pod, known: &PodStatus) -> Vec<&'a str> {
    let told = known.ephemeral_container_statuses.as_deref();
    spec::ephemeral_containers(pod)
        .iter()
        .map(|container| container.name.as_str())
        .filter(|name| !told.unwrap_or_default().iter().any(|s| s.name == *name))
        .collect()
}
