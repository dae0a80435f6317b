//! What the daemon may do by `deploy/`, which has to be enough for its work and no more.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use seaway_testbed::cluster::{Cluster, Node};

/// What the API server lets the daemon do, by resource.
const OF_THE_API: [(&str, &str, bool); 8] = [
    ("watch", "nodes", true),
    ("get", "nodes", false),
    ("list", "endpointslices.discovery.k8s.io", true),
    ("create", "events.events.k8s.io", true),
    ("patch", "events.events.k8s.io", true),
    // The older group of the same name, in which the daemon tells nothing.
    ("create", "events", false),
    ("patch", "events", false),
    ("list", "secrets", false),
];

/// # Errors
/// There is another right than expected, or one less.
pub(crate) fn check(cluster: &Cluster) -> Result<()> {
    for (verb, resource, expected) in OF_THE_API {
        let may = may(cluster, verb, resource)?;
        ensure!(may == expected, "may it {verb} {resource}? {may}");
    }
    Ok(())
}

fn may(cluster: &Cluster, verb: &str, resource: &str) -> Result<bool> {
    let user = "--as=system:serviceaccount:kube-system:seaway";
    let mut command = cluster.kubectl_command(&["auth", "can-i", verb, resource, user]);
    // "no" is also an exit status.
    let output = command.output().context("start kubectl")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    match answer.split_whitespace().next() {
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl auth can-i {verb} {resource}: {answer}{said}")
        }
    }
}

/// Whether the daemon of each node has told of its start at the Node.
pub(crate) fn have_told(cluster: &Cluster) -> Result<bool> {
    let found = cluster.get(&["events.events.k8s.io", "-n", "default"])?;
    let events = found["items"].as_array().into_iter().flatten();
    let starts = events.filter(|event| {
        event["reportingController"] == "seaway-proxy" && event["reason"] == "Starting"
    });
    let nodes: BTreeSet<&str> = starts
        .filter_map(|event| event["regarding"]["name"].as_str())
        .collect();
    Ok(cluster
        .nodes()
        .iter()
        .all(|node| nodes.contains(node.name())))
}

/// As on a node that has never had pods. To change it, the daemon needs a `/proc/sys` that is
/// writable, which its runtime does not give it.
pub(crate) fn stop_forwarding(node: &Node) -> Result<()> {
    sh(node, "echo 0 > /proc/sys/net/ipv4/ip_forward").map(drop)
}

pub(crate) fn forwards(node: &Node) -> Result<bool> {
    Ok(sh(node, "cat /proc/sys/net/ipv4/ip_forward")?.trim() == "1")
}

/// As installers leave the folder of confs: root, who has no more than the daemon's capabilities,
/// obeys its mode.
pub(crate) fn give_away_confs(node: &Node) -> Result<()> {
    sh(
        node,
        "chown 1000:0 /etc/cni/net.d && chmod 0755 /etc/cni/net.d",
    )
    .map(drop)
}

fn sh(node: &Node, script: &str) -> Result<String> {
    let output = node.command("sh").args(["-c", script]).output();
    let output = output.context("start sh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
