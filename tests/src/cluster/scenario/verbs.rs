//! `kubectl` on pods: what a user sees and does.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::{PATIENCE, column, wait_for_answers};
use crate::cluster::Cluster;

/// `logs`, `exec`, `get -o wide`, `describe` and `delete` show and do what they should.
///
/// # Errors
/// What was expected and not so.
pub fn kubectl_works(cluster: &Cluster) -> Result<()> {
    let pod = cluster
        .pods("app=web")?
        .into_iter()
        .next()
        .context("web has no pod")?;
    let said = cluster.kubectl(&["logs", &pod])?;
    ensure!(said.contains("8080"), "kubectl logs {pod}: {said}");
    exec(cluster, &pod)?;
    shown(cluster, &pod)?;
    delete(cluster, &pod)
}

/// Output, exit code and standard input all pass.
fn exec(cluster: &Cluster, pod: &str) -> Result<()> {
    let name = cluster.exec(pod, &["hostname"])?;
    ensure!(name.trim() == pod, "the host name in {pod} is {name}");
    let mut failing = cluster.kubectl_command(&["exec", pod, "--", "sh", "-c", "exit 3"]);
    let code = failing.output().context("start kubectl")?.status.code();
    ensure!(code == Some(3), "exec of `exit 3` ended with {code:?}");
    let mut cat = cluster.kubectl_command(&["exec", "-i", pod, "--", "cat"]);
    let mut cat = cat
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("kubectl")?;
    let mut stdin = cat.stdin.take().context("its input was asked for")?;
    stdin
        .write_all(b"what goes in\n")
        .context("write to kubectl exec")?;
    drop(stdin);
    let output = cat.wait_with_output().context("wait for kubectl exec")?;
    ensure!(
        output.stdout == b"what goes in\n",
        "exec -i cat returned {:?}",
        output.stdout
    );
    Ok(())
}

fn shown(cluster: &Cluster, pod: &str) -> Result<()> {
    let json = cluster.get(&["pod", pod])?;
    let ip = json["status"]["podIP"]
        .as_str()
        .context("no podIP in the status")?;
    let node = json["spec"]["nodeName"].as_str().context("no nodeName")?;
    let wide = cluster.kubectl(&["get", "pod", pod, "-o", "wide", "--no-headers"])?;
    let words: Vec<&str> = wide.split_whitespace().collect();
    ensure!(
        words.starts_with(&[pod, "1/1", "Running", "0"])
            && words.contains(&ip)
            && words.contains(&node),
        "kubectl get pod -o wide: {wide}"
    );
    let found = cluster.exec(pod, &["ip", "-4", "addr", "show", "eth0"])?;
    ensure!(
        found.contains(&format!(" {ip}/")),
        "the pod has another address than {ip}: {found}"
    );
    let described = cluster.kubectl(&["describe", "pod", pod])?;
    for part in [
        "Scheduled",
        "Pulled",
        "Created",
        "Started",
        ip,
        node,
        "Ready",
        "Running",
    ] {
        ensure!(
            described.contains(part),
            "no {part} in kubectl describe pod:\n{described}"
        );
    }
    Ok(())
}

/// A deleted pod is gone, its Deployment gets a new one, and the Service follows.
fn delete(cluster: &Cluster, pod: &str) -> Result<()> {
    cluster.kubectl(&["delete", "pod", pod, "--timeout=60s"])?;
    cluster.wait_available("web", PATIENCE)?;
    let left: BTreeSet<String> = column(cluster, "app=web", "{.metadata.name}")?;
    ensure!(!left.contains(pod), "{pod} is still there");
    let ip = cluster.cluster_ip("web")?;
    wait_for_answers(cluster, &ip, &left)
}
