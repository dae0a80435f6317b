//! What `deploy/` says brings bare nodes into service, and off again: our agent's and the
//! stock kubelet's, with nothing on them but the DaemonSet's image.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod asker;
mod rights;
mod site;
mod traces;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::scenario::{service_answers, step};
use seaway_testbed::cluster::{Agent, Cluster, ClusterOptions, NodeOptions, until};
use seaway_testbed::require_root;
use serde_json::Value;

use asker::Askers;
use site::Site;

/// Images are pulled and unpacked, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn bare_nodes() {
    if !require_root() {
        return;
    }
    let nodes = [Agent::Seaway, Agent::Kubelet].map(NodeOptions::bare);
    let mut options = ClusterOptions::of(nodes.to_vec());
    // Nothing connects pods yet.
    options.ready = 0;
    let mut cluster = Cluster::start(&options).unwrap();
    let site = Site::new(&mut cluster).unwrap();
    let run = |name: &str, check: fn(&Cluster, &Site) -> Result<()>| {
        step(name, || check(&cluster, &site)).unwrap();
    };
    run("bare nodes are not Ready", bare);
    run("kubectl apply -k deploy", apply);
    run("Services answer", |cluster, _| service_answers(cluster));
    run("kubectl delete -k deploy leaves traffic", delete);
    run("kubectl apply -k deploy/uninstall", uninstall);
    cluster.check_alive().unwrap();
}

fn bare(cluster: &Cluster, _: &Site) -> Result<()> {
    for node in cluster.nodes() {
        ensure!(!cluster.is_ready(node)?, "{} is Ready", node.name());
        let found = traces::of(node)?;
        ensure!(found.is_empty(), "on {}: {found:#?}", node.name());
    }
    Ok(())
}

fn apply(cluster: &Cluster, site: &Site) -> Result<()> {
    for node in cluster.nodes() {
        rights::stop_forwarding(node)?;
        rights::give_away_confs(node)?;
    }
    cluster.kubectl(&["apply", "-k", &site.deploy])?;
    wait_daemons(cluster)?;
    cluster.wait_nodes_ready(cluster.nodes().len())?;
    rights::check(cluster)?;
    wait(cluster, "each daemon has told of its start", || {
        rights::have_told(cluster)
    })?;
    for node in cluster.nodes() {
        ensure!(rights::forwards(node)?, "{} forwards nothing", node.name());
        // What the oracle of the end has to find here, or it would find nothing there.
        let found = traces::of(node)?;
        for wanted in ["file", "link", "route", "rules"] {
            let seen = found.iter().any(|trace| trace.starts_with(wanted));
            // Links come with pods and with other nodes.
            ensure!(seen || wanted == "link", "no {wanted}: {found:#?}");
        }
    }
    let pods = cluster.get(&["pods", "-n", "kube-system", "-l", "app=seaway"])?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let status = &pod["status"]["containerStatuses"][0];
        ensure!(status["restartCount"] == 0, "it was restarted: {status}");
    }
    Ok(())
}

/// Nobody notices.
fn delete(cluster: &Cluster, site: &Site) -> Result<()> {
    let mut askers = Askers::start(cluster, &cluster.cluster_ip("web")?)?;
    cluster.kubectl(&["delete", "-k", &site.deploy])?;
    wait_no_daemons(cluster)?;
    askers.go_on()?;
    askers.stop()?;
    service_answers(cluster)
}

fn uninstall(cluster: &Cluster, site: &Site) -> Result<()> {
    cluster.kubectl(&[
        "delete",
        "deployment/web",
        "daemonset/prober",
        "service/web",
    ])?;
    for label in ["app=web", "app=prober"] {
        cluster.wait_gone(label, PATIENCE)?;
    }
    cluster.kubectl(&["apply", "-k", &site.uninstall])?;
    wait_cleaned(cluster)?;
    cluster.kubectl(&["delete", "-k", &site.uninstall])?;
    wait_no_daemons(cluster)?;
    for node in cluster.nodes() {
        let found = traces::of(node)?;
        ensure!(found.is_empty(), "left on {}: {found:#?}", node.name());
    }
    Ok(())
}

/// Until the DaemonSet is ready on all nodes.
fn wait_daemons(cluster: &Cluster) -> Result<()> {
    wait(cluster, "seaway is ready on all nodes", || {
        let found = cluster.get(&["daemonset", "seaway", "-n", "kube-system"])?;
        let ready = found["status"]["numberReady"].as_u64();
        Ok(ready == u64::try_from(cluster.nodes().len()).ok())
    })
}

/// Until cleanup is done on all nodes. Their pods are not Ready: the nodes are not.
fn wait_cleaned(cluster: &Cluster) -> Result<()> {
    wait(cluster, "cleanup is done on all nodes", || {
        let label = "app=seaway-uninstall";
        let found = cluster.get(&["pods", "-n", "kube-system", "-l", label])?;
        let pods = found["items"].as_array().into_iter().flatten();
        let runs =
            |pod: &&Value| pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
        Ok(pods.filter(runs).count() == cluster.nodes().len())
    })
}

fn wait(cluster: &Cluster, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let done = until(what, PATIENCE, || {
        cluster.check_alive()?;
        Ok(is_so()?.then_some(()))
    });
    done.with_context(|| said(cluster))
}

fn wait_no_daemons(cluster: &Cluster) -> Result<()> {
    let label = "app.kubernetes.io/name=seaway";
    until("no pod of ours is there", PATIENCE, || {
        cluster.check_alive()?;
        let apps = "app in (seaway, seaway-uninstall)";
        let pods =
            cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", apps, "-o", "name"])?;
        Ok(pods.trim().is_empty().then_some(()))
    })?;
    let words = [
        "get",
        "all,configmaps,serviceaccounts",
        "-A",
        "-l",
        label,
        "-o",
        "name",
    ];
    let left = cluster.kubectl(&words)?;
    ensure!(left.trim().is_empty(), "left in the API: {left}");
    Ok(())
}

/// The pods and the ends of their logs, for whoever has to find out.
fn said(cluster: &Cluster) -> String {
    let ask = |words: &[&str]| {
        cluster
            .kubectl(words)
            .unwrap_or_else(|error| format!("{error:#}"))
    };
    let mut text = ask(&["describe", "pods", "-n", "kube-system"]);
    for app in ["seaway", "seaway-uninstall"] {
        let label = format!("app={app}");
        text += &ask(&[
            "logs",
            "-n",
            "kube-system",
            "-l",
            &label,
            "--all-containers",
            "--prefix",
            "--tail=30",
            "--ignore-errors",
        ]);
    }
    text
}
