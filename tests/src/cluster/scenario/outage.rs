//! Agent and proxy die and stay dead for a while; traffic does not notice.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{PATIENCE, column, wait_for_answers};
use crate::cluster::{Cluster, Dialers, Role, say, until};
use crate::peer::Dialed;

/// From one new connection to the next.
const EVERY: Duration = Duration::from_millis(20);
/// How long both daemons are left dead.
const DEAD: Duration = Duration::from_secs(30);
/// Of the 50 new connections a second that are asked for: what a busy machine manages, which
/// makes up for none that it was late with. Enough to see a pause; none may fail.
const NEW_PER_SECOND: f64 = 20.0;
/// The held connection is used about ten times a second.
const HELD_PER_SECOND: f64 = 5.0;

/// Kills agent and proxy of every node with SIGKILL and leaves them dead for 30 s, while a pod
/// and the node itself open a connection every 20 ms, on each node, and keep one open. None
/// fails. Then both are started again, and follow the API as before.
///
/// # Errors
/// What was expected and not so.
pub fn daemons_may_die(cluster: &mut Cluster) -> Result<()> {
    let ip = cluster.cluster_ip("web")?;
    let address: SocketAddr = format!("{ip}:80").parse().context("the ClusterIP")?;
    let dialers = dialers(cluster, address)?;
    let before = dialers.counts()?;
    let containers = containers(cluster)?;

    let killed = Instant::now();
    for index in 0..cluster.nodes().len() {
        cluster.node_mut(index).kill(Role::Agent)?;
        cluster.node_mut(index).kill(Role::Proxy)?;
    }
    until("agent and proxy have been dead for 30 s", DEAD * 2, || {
        dialers.counts()?;
        Ok((killed.elapsed() >= DEAD).then_some(()))
    })?;
    let dead = dialers.counts()?;
    compare("both dead", &before, &dead)?;
    for index in 0..cluster.nodes().len() {
        cluster.node_mut(index).restart(Role::Agent)?;
        cluster.node_mut(index).restart(Role::Proxy)?;
    }
    recovered(cluster, &ip)?;

    compare("both back", &dead, &dialers.stop()?)?;
    let now = self::containers(cluster)?;
    ensure!(
        containers.is_subset(&now),
        "containers were restarted: before {containers:?}, now {now:?}"
    );
    Ok(())
}

/// Two for each node: one where the node's own programs run, one where the pod of that node with
/// the label `app=prober` does.
fn dialers(cluster: &Cluster, address: SocketAddr) -> Result<Dialers> {
    let program = crate::bin("seaway-peer");
    let mut dialers = Dialers::default();
    let probers = cluster.pods("app=prober")?;
    for prober in probers {
        let pod = cluster.pod(&prober)?;
        let command = cluster.node(&pod.node)?.command(&program);
        dialers.add(
            cluster,
            format!("{} itself", pod.node),
            command,
            address,
            EVERY,
        )?;
        let command = cluster.in_pod(&pod, &program)?;
        let name = format!("{} on {}", pod.name, pod.node);
        dialers.add(cluster, name, command, address, EVERY)?;
    }
    dialers.wait_answered()?;
    Ok(dialers)
}

/// More replicas become available and answer: both daemons follow the API again.
fn recovered(cluster: &Cluster, ip: &str) -> Result<()> {
    cluster.kubectl(&["scale", "deployment", "web", "--replicas=4"])?;
    cluster.wait_available("web", PATIENCE)?;
    let expected: BTreeSet<String> = cluster.pods("app=web")?.into_iter().collect();
    wait_for_answers(cluster, ip, &expected)
}

/// The ids of the containers that must survive.
fn containers(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let path = "{.status.containerStatuses[*].containerID}";
    let mut found = column(cluster, "app=web", path)?;
    found.append(&mut column(cluster, "app=prober", path)?);
    Ok(found)
}

/// Nothing has failed meanwhile, and it was tried often enough to mean something.
fn compare(when: &str, before: &[(String, Dialed)], after: &[(String, Dialed)]) -> Result<()> {
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let seconds = after.elapsed.saturating_sub(before.elapsed).as_secs_f64();
        let rate = |new: u64, old: u64| {
            let new = u32::try_from(new - old).unwrap_or(u32::MAX);
            f64::from(new) / seconds
        };
        let (new, held) = (rate(after.new, before.new), rate(after.held, before.held));
        say(&format!(
            "{when}, from {name}: {new:.1} new connections per second for {seconds:.0} s, \
             the longest {:.1} ms, {held:.1} answers per second on the held one, \
             none failed; longest pause so far {:.1} ms",
            after.longest.as_secs_f64() * 1e3,
            after.gap.as_secs_f64() * 1e3
        ));
        ensure!(
            after.failed + after.broken == 0,
            "{when}, from {name}: {after:?}"
        );
        ensure!(
            new >= NEW_PER_SECOND && held >= HELD_PER_SECOND,
            "{when}, from {name}: too few to mean something: {before:?}, then {after:?}"
        );
    }
    Ok(())
}
