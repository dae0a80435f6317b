//! What pods leave on their nodes: nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::{Cluster, Node, until};
use serde_json::Value;

use crate::pods::{self, HOST_PORT};

/// The API forgets a pod a moment before its node has cleaned up.
const PATIENCE: Duration = Duration::from_secs(15);

/// Deletes all pods; then no node has a record, link, route or port of one.
pub(crate) fn none(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        ensure!(
            !left(node)?.is_empty(),
            "nothing to clean up on {}",
            node.name()
        );
    }
    pods::delete(cluster)?;
    for node in cluster.nodes() {
        let mut last = Vec::new();
        until(&format!("{} is clean", node.name()), PATIENCE, || {
            last = left(node)?;
            Ok(last.is_empty().then_some(()))
        })
        .with_context(|| format!("left on {}: {last:#?}", node.name()))?;
    }
    Ok(())
}

fn left(node: &Node) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for link in json(node, &["link"])? {
        if of_a_pod(&link["ifname"]) {
            left.push(format!("link {link}"));
        }
    }
    for family in ["-4", "-6"] {
        for route in json(
            node,
            &[family, "route", "show", "table", "all", "proto", "83"],
        )? {
            if of_a_pod(&route["dev"]) {
                left.push(format!("route {route}"));
            }
        }
    }
    let records = run(node, "find", &["/run/seaway/cni", "-name", "*=*"])?;
    left.extend(records.lines().map(|line| format!("record {line}")));
    // Without counters, whose numbers may hold the port's.
    let rules = run(node, "nft", &["-s", "list", "ruleset"])?;
    let port = HOST_PORT.to_string();
    let has_port = |line: &&str| {
        line.split(|c: char| !c.is_alphanumeric())
            .any(|w| w == port)
    };
    let rules = rules.lines().filter(has_port);
    left.extend(rules.map(|line| format!("rule {}", line.trim())));
    Ok(left)
}

/// `sw` and twelve digits.
fn of_a_pod(link: &Value) -> bool {
    let name = link.as_str().unwrap_or_default();
    name.starts_with("sw") && name.len() == 14
}

fn json(node: &Node, args: &[&str]) -> Result<Vec<Value>> {
    let words = [&["-j"], args].concat();
    let text = run(node, "ip", &words)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).with_context(|| format!("ip {words:?}: {text}"))
}

fn run(node: &Node, program: &str, args: &[&str]) -> Result<String> {
    let output = node.command(program).args(args).output();
    let output = output.with_context(|| format!("start {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
