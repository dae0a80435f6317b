//! What a failing test leaves to read.

use std::fs;
use std::path::Path;

use super::{Cluster, say};

/// Enough to see why a program ended, little enough to find it among twelve.
const TAIL_LINES: usize = 15;

/// Prints the state of the cluster, the ends of its logs, and how to look around.
pub(super) fn print(cluster: &Cluster) {
    for args in [
        &[
            "get",
            "nodes,pods,services,endpointslices",
            "-A",
            "-o",
            "wide",
        ][..],
        &["get", "events", "-A", "--sort-by=.lastTimestamp"],
    ] {
        match cluster.kubectl(args) {
            Ok(text) => say(&format!("kubectl {}:\n{text}", args.join(" "))),
            Err(error) => say(&format!("{error:#}")),
        }
    }
    for daemon in cluster.daemons() {
        say(&format!(
            "the end of {}:\n{}",
            daemon.name(),
            tail(daemon.log())
        ));
    }
    say("with SEAWAY_KEEP=1 a failed cluster stays; to enter the control plane:");
    say(&cluster.how_to_enter());
    for node in cluster.nodes() {
        say(&format!(
            "to enter {}: {}",
            node.name(),
            node.how_to_enter()
        ));
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
