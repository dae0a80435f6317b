//! Nodes change their addresses, go and come back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ipnetwork::IpNetwork;
use seaway_testbed::cluster::{Cluster, Node, Pod, Role, until};

use crate::path::{self, Mode};
use crate::{pods, reach};

/// From the change until pods reach each other again: the agent has to say it first, and the
/// node that has changed hears of it when it has noticed that its old connection is dead.
const AGAIN: Duration = Duration::from_secs(90);

/// The second node gets another address of each family; its pods stay and are reached again.
pub(crate) fn moves(cluster: &mut Cluster, mode: Mode) -> Result<()> {
    let started = Instant::now();
    let spare = cluster.families().spare_ips(1);
    cluster.node_mut(1).move_to(spare)?;
    works_again(cluster, mode, started)?;
    cluster.connect_pods()?;
    reach::from_nodes(cluster, cluster.nodes())?;
    reach::outside(cluster)
}

/// The second node is deleted from the API, and registers again, perhaps with other pod CIDRs;
/// its pods are made again.
pub(crate) fn goes_and_comes_back(cluster: &mut Cluster, mode: Mode) -> Result<()> {
    let name = cluster.nodes()[1].name().to_owned();
    let path = "jsonpath={.spec.podCIDRs[*]}";
    let old = cluster.kubectl(&["get", "node", &name, "-o", path])?;
    // It does not register by itself while it runs.
    cluster.node_mut(1).kill(Role::Agent)?;
    cluster.kubectl(&["delete", "node", &name])?;
    until("there is no route to it", AGAIN, || {
        let first = &cluster.nodes()[0];
        let none = old
            .split(' ')
            .all(|range| path::no_route(first, range).is_ok());
        Ok(none.then_some(()))
    })?;
    if mode == Mode::Vxlan {
        path::only_to(&cluster.nodes()[0], &BTreeSet::new())?;
    }
    let started = Instant::now();
    cluster.node_mut(1).restart(Role::Agent)?;
    // Also what the API still says of its former pods is of the node that was.
    cluster.kubectl(&[
        "delete",
        "pod",
        "two",
        "--force",
        "--grace-period=0",
        "--ignore-not-found",
    ])?;
    cluster.connect_pods()?;
    cluster.wait_nodes_ready(cluster.nodes().len())?;
    pods::create(cluster)?;
    works_again(cluster, mode, started)?;
    let new = cluster.kubectl(&["get", "node", &name, "-o", path])?;
    eprintln!("   its pod CIDRs were {old}, are {new}");
    is_in(&cluster.pod("two")?, &new)?;
    reach::everything(cluster)
}

/// A pod has an address of each range.
fn is_in(pod: &Pod, ranges: &str) -> Result<()> {
    let ranges: Vec<&str> = ranges.split(' ').collect();
    ensure!(pod.ips.len() == ranges.len(), "{pod:?} of {ranges:?}");
    for (ip, range) in pod.ips.iter().zip(&ranges) {
        let (ip, network): (IpAddr, IpNetwork) = (ip.parse()?, range.parse()?);
        ensure!(network.contains(ip), "{pod:?} is not in {ranges:?}");
    }
    Ok(())
}

fn works_again(cluster: &Cluster, mode: Mode, started: Instant) -> Result<()> {
    let mut last = None;
    until("pods reach each other again", AGAIN, || {
        last = reach::between_pods(cluster).err();
        Ok(last.is_none().then_some(()))
    })
    .with_context(|| format!("last: {last:?}"))?;
    eprintln!("   again after {:.1} s", started.elapsed().as_secs_f64());
    path::wait(cluster, mode)?;
    if mode == Mode::Vxlan {
        for node in cluster.nodes() {
            let others = cluster
                .nodes()
                .iter()
                .filter(|other| other.name() != node.name());
            path::only_to(node, &others.map(Node::ip).collect())?;
        }
    }
    Ok(())
}
