//! What our agent does not do, it says.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::PATIENCE;
use crate::cluster::{AGNHOST, Cluster, until};

/// `kubectl debug` of a running pod learns that the node cannot, and the pod runs on; a pod
/// that names a node which it must not run on fails with the reason.
///
/// # Errors
/// What was expected and not so.
pub fn refusals_are_told(cluster: &Cluster) -> Result<()> {
    let pod = cluster.pods("app=prober")?.into_iter().next();
    ephemeral_container(cluster, &pod.context("no prober")?)?;
    for (name, spec, reason) in [
        (
            "misplaced",
            "  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
             {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}\n",
            "NodeAffinity",
        ),
        (
            "too-big",
            "  initContainers: [{name: init, image: none, resources: {requests: {cpu: 1k}}}]\n",
            "OutOfcpu",
        ),
        ("apart", "  hostUsers: false\n", "PodFeatureUnsupported"),
    ] {
        rejected(cluster, name, spec, reason)?;
    }
    Ok(())
}

fn ephemeral_container(cluster: &Cluster, pod: &str) -> Result<()> {
    let image = format!("--image={AGNHOST}");
    cluster.kubectl(&["debug", pod, &image, "-c", "debugger", "--", "true"])?;
    let said = until("the status speaks of the debugger", PATIENCE, || {
        let status = cluster.get(&["pod", pod])?["status"].take();
        let said = status["ephemeralContainerStatuses"][0].clone();
        Ok((said["name"] == "debugger").then_some(said))
    })?;
    let reason = "EphemeralContainersNotSupported";
    ensure!(said["state"]["waiting"]["reason"] == reason, "{said}");
    let told = until("there is an event", PATIENCE, || {
        let events = events(cluster, pod, reason)?;
        Ok((!events.is_empty()).then_some(events))
    })?;
    let [event] = &told[..] else {
        anyhow::bail!("told {} times: {told:?}", told.len());
    };
    let count = event["count"].as_u64().unwrap_or(1);
    ensure!(event["type"] == "Warning" && count == 1, "{event}");
    let path = &event["involvedObject"]["fieldPath"];
    ensure!(path == "spec.ephemeralContainers{debugger}", "{event}");
    cluster.wait_ready(pod, PATIENCE)
}

/// A pod on the first node, past the scheduler.
fn rejected(cluster: &Cluster, name: &str, spec: &str, reason: &str) -> Result<()> {
    let node = cluster.nodes()[0].name();
    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
{spec}  containers:
  - {{name: main, image: {AGNHOST}}}
"
    ))?;
    let status = until(&format!("{name} is rejected"), PATIENCE, || {
        let status = cluster.get(&["pod", name])?["status"].take();
        Ok((status["phase"] == "Failed").then_some(status))
    })?;
    ensure!(status["reason"] == reason, "{name}: {status}");
    until(&format!("an event {reason}"), PATIENCE, || {
        Ok((!events(cluster, name, reason)?.is_empty()).then_some(()))
    })?;
    cluster
        .kubectl(&["delete", "pod", name, "--timeout=30s"])
        .map(drop)
}

fn events(cluster: &Cluster, pod: &str, reason: &str) -> Result<Vec<Value>> {
    let selector = format!("involvedObject.name={pod},reason={reason}");
    let mut found = cluster.get(&["events", "--field-selector", &selector])?;
    match found["items"].take() {
        Value::Array(events) => Ok(events),
        other => anyhow::bail!("not a list of events: {other}"),
    }
}
