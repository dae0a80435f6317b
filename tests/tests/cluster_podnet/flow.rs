//! Traffic runs on while the pod network changes its ways.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::bin;
use seaway_testbed::cluster::{Cluster, Dialers, Role, host_port, until};
use seaway_testbed::peer::Dialed;

use crate::path::{self, Mode};
use crate::pods::PORT;

/// From one new connection to the next, of each dialer.
const EVERY: Duration = Duration::from_millis(50);
/// At least so many of them, on a machine with hiccups.
const NEW_PER_SECOND: f64 = 12.0;
/// Before and after the change.
const STEADY: Duration = Duration::from_secs(2);

/// Starts `seaway-proxy` of all nodes again, at once, with another mode, while the pods and the
/// nodes open connections to the pods of the other node.
///
/// A connection may take as long as its second try, which TCP makes after a second, and not
/// longer than the two seconds that a dialer waits; one that is kept must not break.
pub(crate) fn change(cluster: &mut Cluster, mode: Mode) -> Result<()> {
    let dialers = dialers(cluster)?;
    steady(&dialers)?;
    let before = dialers.counts()?;
    for index in 0..cluster.nodes().len() {
        cluster.node_mut(index).kill(Role::PodNetwork)?;
    }
    for index in 0..cluster.nodes().len() {
        let node = cluster.node_mut(index);
        node.set_pod_network(mode.flags());
        node.restart(Role::PodNetwork)?;
    }
    path::wait(cluster, mode)?;
    steady(&dialers)?;
    compare(&before, &dialers.stop()?)
}

/// A while in which nothing changes.
fn steady(dialers: &Dialers) -> Result<()> {
    let started = Instant::now();
    until("nothing has changed for a while", STEADY * 2, || {
        dialers.counts()?;
        Ok((started.elapsed() >= STEADY).then_some(()))
    })
}

/// From each of two pods and from their nodes to the other pod, in each family.
fn dialers(cluster: &Cluster) -> Result<Dialers> {
    let mut dialers = Dialers::default();
    let program = bin("seaway-peer");
    for (from, to) in [("one", "two"), ("two", "one")] {
        let (from, to) = (cluster.pod(from)?, cluster.pod(to)?);
        for ip in &to.ips {
            let address = host_port(ip, PORT);
            let address: SocketAddr = address.parse().context("the pod's address")?;
            let name = |who: &str| format!("{who} to {ip}");
            let pod = cluster.in_pod(&from, &program)?;
            dialers.add(cluster, name(&from.name), pod, address, EVERY)?;
            let node = cluster.node(&from.node)?.command(&program);
            dialers.add(cluster, name(&from.node), node, address, EVERY)?;
        }
    }
    dialers.wait_answered()?;
    Ok(dialers)
}

fn compare(before: &[(String, Dialed)], after: &[(String, Dialed)]) -> Result<()> {
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let seconds = after.elapsed.saturating_sub(before.elapsed).as_secs_f64();
        let new = u32::try_from(after.new - before.new).unwrap_or(u32::MAX);
        let rate = f64::from(new) / seconds;
        eprintln!(
            "   {name}: {rate:.1} new connections per second for {seconds:.0} s, the longest \
             {:.0} ms, {} answers on the kept one, none failed",
            after.longest.as_secs_f64() * 1e3,
            after.held - before.held
        );
        ensure!(after.failed + after.broken == 0, "{name}: {after:?}");
        ensure!(rate >= NEW_PER_SECOND, "{name}: too few: {after:?}");
        ensure!(after.held > before.held, "{name}: nothing on the kept one");
    }
    Ok(())
}
