//! Which way packets to the other node's pods go, as the kernel says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::{Cluster, Node, until};

use crate::pods;

/// A probe may have to wait for its next turn, 30 s later.
const PATIENCE: Duration = Duration::from_secs(45);

/// How pod addresses of the other node are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Routes via the node's own address
    Direct,
    /// In VXLAN
    Vxlan,
    /// What a probe finds; here nothing stands in the way of direct routes
    Auto,
}

impl Mode {
    /// What `seaway-proxy` is told.
    pub(crate) const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &["--pod-routes=direct"],
            Self::Vxlan => &["--pod-routes=vxlan"],
            Self::Auto => &["--pod-routes=auto"],
        }
    }

    fn link(self) -> &'static str {
        match self {
            Self::Direct | Self::Auto => "eth0",
            Self::Vxlan => "seaway.vx",
        }
    }
}

/// Waits until every node sends to the pods of the others as the mode says.
pub(crate) fn wait(cluster: &Cluster, mode: Mode) -> Result<()> {
    let started = Instant::now();
    for pod in pods::all(cluster)? {
        let others = cluster
            .nodes()
            .iter()
            .filter(|node| node.name() != pod.node);
        for node in others {
            for ip in &pod.ips {
                wait_for(node, ip, mode)?;
            }
        }
    }
    eprintln!("   {mode:?} after {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn wait_for(node: &Node, ip: &str, mode: Mode) -> Result<()> {
    let mut last = String::new();
    let what = format!("{} sends to {ip} through {}", node.name(), mode.link());
    until(&what, PATIENCE, || {
        last = link_to(node, ip)?;
        Ok((last == mode.link()).then_some(()))
    })
    .with_context(|| format!("last through {last:?}"))
}

/// The link that packets to an address leave by; empty without a route.
fn link_to(node: &Node, ip: &str) -> Result<String> {
    let mut command = node.command("ip");
    let output = command
        .args(["-j", "route", "get", ip])
        .output()
        .context("start ip")?;
    let Ok(found) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
        return Ok(String::new());
    };
    Ok(found[0]["dev"].as_str().unwrap_or_default().to_owned())
}

/// Where a node's VXLAN device sends to: the first addresses of the other nodes, and no others.
pub(crate) fn only_to(node: &Node, ips: &BTreeSet<&str>) -> Result<()> {
    let shown = node
        .command("bridge")
        .args(["-j", "fdb", "show", "dev", "seaway.vx"])
        .output()
        .context("start bridge")?;
    let entries: Vec<serde_json::Value> =
        serde_json::from_slice(&shown.stdout).with_context(|| format!("{shown:?}"))?;
    let found: BTreeSet<&str> = entries.iter().filter_map(|e| e["dst"].as_str()).collect();
    ensure!(&found == ips, "{} sends to {found:?}", node.name());
    Ok(())
}

/// Asserts that a node has no route of ours to a range any more.
pub(crate) fn no_route(node: &Node, range: &str) -> Result<()> {
    // Without its flag `ip` shows no route of IPv6.
    let family = if range.contains(':') { "-6" } else { "-4" };
    let words = [family, "-j", "route", "show", range];
    let shown = node.command("ip").args(words).output();
    let shown = shown.context("start ip")?;
    ensure!(shown.status.success(), "ip route show {range}: {shown:?}");
    let text = String::from_utf8_lossy(&shown.stdout);
    ensure!(
        matches!(text.trim(), "" | "[]" | "[{}]"),
        "a route is left: {text}"
    );
    Ok(())
}
