//! The two verbs, called as the daemon calls them.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::node::{Node, text};

/// Not as a runtime calls it.
fn command(node: &Node, words: &[&str]) -> Command {
    let mut command = node.netns.command(&node.program);
    command.env_clear().args(words);
    command.arg("--data-dir").arg(node.dir.path().join("cni"));
    command
}

pub(crate) fn output(node: &Node, words: &[&str]) -> Output {
    command(node, words).output().unwrap()
}

#[track_caller]
fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    assert!(output.stderr.is_empty(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn repair(node: &Node) -> Value {
    report(&output(node, &["repair", "--network", "seaway"]))
}

/// One sweep that takes what an earlier one has seen, however short ago.
#[track_caller]
pub(crate) fn sweep(node: &Node) -> Value {
    let words = ["sweep", "--network", "seaway", "--apart", "0"];
    report(&output(node, &words))
}

/// Sweeps twice; the first time nothing may go.
#[track_caller]
pub(crate) fn sweep_twice(node: &Node) -> Value {
    let first = sweep(node);
    assert_eq!(first["released"], json!([]), "{first}");
    assert_eq!(first["removedLinks"], json!([]), "{first}");
    sweep(node)
}

/// Nothing was found, nothing was done.
pub(crate) fn nothing() -> Value {
    json!({
        "released": [], "removedLinks": [], "waiting": 0, "aliveWithoutRecord": [],
        "closedHostPorts": [], "purgedBoots": 0, "skipped": [], "failures": [],
    })
}

/// The container ids that a sweep has released.
pub(crate) fn released(report: &Value) -> Vec<&str> {
    let all = report["released"].as_array().unwrap().iter();
    all.map(|one| one["containerId"].as_str().unwrap())
        .collect()
}

/// A mapping of a port of the host to the pod's port 80.
pub(crate) fn mapping(host_ip: &str, host_port: u16, protocol: &str) -> Value {
    json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol, "hostIP": host_ip})
}

/// An ADD with hostPorts.
#[track_caller]
pub(crate) fn add(
    node: &mut Node,
    id: &str,
    pod: &seaway_testbed::Netns,
    ports: &[Value],
) -> Value {
    node.conf["runtimeConfig"] = json!({"portMappings": ports});
    let result = node.add(id, pod);
    node.conf["runtimeConfig"] = Value::Null;
    result
}
