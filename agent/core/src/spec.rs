//! Short questions to a pod's spec, with the API's defaults applied.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use sha2::{Digest, Sha256};

/// When an ended container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// On any exit code but 0.
    OnFailure,
    /// Never.
    Never,
}

impl RestartPolicy {
    /// Whether a container that ended with `exit_code` is started again.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }

    /// The same for init containers, for which Always means until success.
    pub fn restarts_init(self, exit_code: i32) -> bool {
        self != Self::Never && exit_code != 0
    }
}

/// `namespace/name`.
pub fn key(pod: &Pod) -> String {
    format!("{}/{}", namespace(pod), name(pod))
}

/// The pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The pod's UID.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// `name_namespace(uid)`, as kubelet's messages write it.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// App containers, in spec order.
pub fn containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default()
}

/// Init containers, in spec order.
pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default()
}

/// Containers that were added to the running pod (`kubectl debug`).
pub fn ephemeral_containers(pod: &Pod) -> &[EphemeralContainer] {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.ephemeral_containers.as_deref())
        .unwrap_or_default()
}

/// Init and app containers.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    init_containers(pod).iter().chain(containers(pod))
}

/// The container of that name.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    all_containers(pod).find(|container| container.name == name)
}

/// `spec.containers{name}`, `spec.initContainers{name}` or
/// `spec.ephemeralContainers{name}`, for events.
pub fn field_path(pod: &Pod, container: &str) -> String {
    let list = if init_containers(pod).iter().any(|c| c.name == container) {
        "initContainers"
    } else if is_ephemeral(pod, container) {
        "ephemeralContainers"
    } else {
        "containers"
    };
    format!("spec.{list}{{{container}}}")
}

/// The pod has an ephemeral container of that name.
pub fn is_ephemeral(pod: &Pod, container: &str) -> bool {
    ephemeral_containers(pod)
        .iter()
        .any(|c| c.name == container)
}

fn flag(pod: &Pod, get: impl Fn(&PodSpec) -> Option<bool>) -> bool {
    pod.spec.as_ref().and_then(get).unwrap_or(false)
}

/// The pod lives in the node's network namespace.
pub fn host_network(pod: &Pod) -> bool {
    flag(pod, |spec| spec.host_network)
}

/// The pod lives in the node's PID namespace.
pub fn host_pid(pod: &Pod) -> bool {
    flag(pod, |spec| spec.host_pid)
}

/// The pod lives in the node's IPC namespace.
pub fn host_ipc(pod: &Pod) -> bool {
    flag(pod, |spec| spec.host_ipc)
}

/// The containers of the pod see each other's processes.
pub fn share_process_namespace(pod: &Pod) -> bool {
    flag(pod, |spec| spec.share_process_namespace)
}

/// The pod's restart policy.
pub fn restart_policy(pod: &Pod) -> RestartPolicy {
    match pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
    {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// Somebody asked for the pod to end.
pub fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Time between the stop signal and the kill: the deletion's where the pod is
/// being deleted, else the spec's. Never below one second, like kubelet's.
pub fn grace(pod: &Pod) -> Duration {
    let seconds = pod
        .metadata
        .deletion_grace_period_seconds
        .or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds)
        .unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
}

/// What a running container is compared by: another hash means another container.
/// Name and image only, so that a newer agent with more fields restarts nothing.
pub fn container_hash(container: &Container) -> String {
    let mut hasher = Sha256::new();
    hasher.update(&container.name);
    hasher.update([0]);
    hasher.update(container.image.as_deref().unwrap_or_default());
    let digest = hasher.finalize();
    let word = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{word:08x}")
}
