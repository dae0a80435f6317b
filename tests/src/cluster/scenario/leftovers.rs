//! What a pod leaves on its node, and that it goes.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use super::PATIENCE;
use crate::cluster::{AGNHOST, Cluster, Node, Role, until};

/// The logs of a pod that has ended stay for as long as the pod does, and go with it: also when
/// it is deleted while no agent runs. A directory of somebody else's stays.
///
/// # Errors
/// What was expected and not so.
pub fn logs_go_with_their_pod(cluster: &mut Cluster) -> Result<()> {
    run(cluster.nodes()[0].command("mkdir").args(["-p", FOREIGN]))?;
    ended_pod(cluster, "once")?;
    ensure!(has_logs(&cluster.nodes()[0], "once")?, "no logs of once");
    cluster.kubectl(&["delete", "pod", "once", "--timeout=30s"])?;
    ensure!(!has_logs(&cluster.nodes()[0], "once")?, "logs of once stay");

    ended_pod(cluster, "unseen")?;
    cluster.node_mut(0).kill(Role::Agent)?;
    cluster.kubectl(&["delete", "pod", "unseen", "--force", "--grace-period=0"])?;
    ensure!(
        has_logs(&cluster.nodes()[0], "unseen")?,
        "no logs of unseen"
    );
    cluster.node_mut(0).restart(Role::Agent)?;
    let cluster = &*cluster;
    until("the logs of unseen are gone", PATIENCE, || {
        cluster.check_alive()?;
        Ok((!has_logs(&cluster.nodes()[0], "unseen")?).then_some(()))
    })?;
    let left = log_directories(&cluster.nodes()[0])?;
    ensure!(left.contains("default_foreign_0000"), "left are {left:?}");
    run(cluster.nodes()[0].command("rmdir").arg(FOREIGN))
}

const LOGS: &str = "/var/log/pods";
const FOREIGN: &str = "/var/log/pods/default_foreign_0000";

/// A pod on the first node that says something and ends.
fn ended_pod(cluster: &Cluster, name: &str) -> Result<()> {
    let node = cluster.nodes()[0].name();
    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
  restartPolicy: Never
  containers:
  - {{name: main, image: {AGNHOST}, command: [echo, word]}}
"
    ))?;
    until(&format!("{name} has ended"), PATIENCE, || {
        cluster.check_alive()?;
        let status = cluster.get(&["pod", name])?["status"].take();
        Ok((status["phase"] == "Succeeded").then_some(()))
    })
}

fn has_logs(node: &Node, pod: &str) -> Result<bool> {
    let prefix = format!("default_{pod}_");
    let found = log_directories(node)?;
    Ok(found.iter().any(|name| name.starts_with(&prefix)))
}

fn log_directories(node: &Node) -> Result<BTreeSet<String>> {
    let output = node.command("ls").arg(LOGS).output().context("start ls")?;
    ensure!(output.status.success(), "ls {LOGS}: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

fn run(command: &mut std::process::Command) -> Result<()> {
    let status = command.status().context("start a command on the node")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
