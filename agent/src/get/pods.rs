//! Pods in a table (`printPod` of the API server's printers).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::{age, heading, names};

pub(super) fn rows(pods: &[Pod], now: Timestamp) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = pods.iter().map(|pod| row(pod, now)).collect();
    rows.sort();
    rows.insert(
        0,
        heading(&[
            "NAMESPACE",
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
            "IP",
        ]),
    );
    rows
}

fn row(pod: &Pod, now: Timestamp) -> Vec<String> {
    let statuses = containers(pod);
    let ready = statuses.iter().filter(|status| status.ready).count();
    let total = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let restarts: i32 = statuses.iter().map(|status| status.restart_count).sum();
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let [namespace, name] = names(&pod.metadata);
    vec![
        namespace,
        name,
        format!("{ready}/{total}"),
        status(pod),
        restarts.to_string(),
        age(&pod.metadata, now),
        ip.filter(|ip| !ip.is_empty())
            .unwrap_or_else(|| "<none>".to_owned()),
    ]
}

fn containers(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default()
}

/// One word for what the pod is doing, or why it is not.
fn status(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.as_ref();
    if let Some(reason) = status.and_then(|status| status.reason.clone()) {
        return reason;
    }
    if let Some(init) = init_status(pod) {
        return init;
    }
    let phase = status.and_then(|status| status.phase.clone());
    // The first container that has something to say, as long as none runs.
    containers(pod)
        .iter()
        .find_map(reason)
        .or(phase)
        .unwrap_or_else(|| "Unknown".to_owned())
}

/// Why a container does not run.
fn reason(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        return waiting.reason.clone().filter(|reason| !reason.is_empty());
    }
    let terminated = state.terminated.as_ref()?;
    let reason = terminated
        .reason
        .clone()
        .filter(|reason| !reason.is_empty());
    Some(reason.unwrap_or_else(|| match terminated.signal {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated.exit_code),
    }))
}

/// `Init:1/2` and the like, while an init container has not succeeded.
fn init_status(pod: &Pod) -> Option<String> {
    let total = pod.spec.as_ref()?.init_containers.as_ref()?.len();
    let statuses = pod
        .status
        .as_ref()?
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    for (done, status) in statuses.iter().enumerate() {
        let state = status.state.clone().unwrap_or_default();
        if state
            .terminated
            .as_ref()
            .is_some_and(|terminated| terminated.exit_code == 0)
        {
            continue;
        }
        // A sidecar that has started does not hold up the others.
        if status.started == Some(true) && state.running.is_some() {
            continue;
        }
        return Some(match reason(status) {
            Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{done}/{total}"),
        });
    }
    None
}
