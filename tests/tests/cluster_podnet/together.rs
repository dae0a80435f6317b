//! Nodes that are not ours, and an API server that keeps us waiting.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::scenario::step;
use seaway_testbed::cluster::{Cluster, ClusterOptions, Node, NodeOptions, until};
use seaway_testbed::{XTABLES_WAIT, require_root};
use serde_json::Value;

use crate::path::Mode;
use crate::{pods, reach};

/// Nobody listens there, until it leads to the API server.
const HELD_BACK: &[&str] = &["--api-server=https://172.30.0.1:7443"];
const HELD_FOR: Duration = Duration::from_mins(1);
/// From the first answer of the API to a node that is Ready: `seaway-proxy` tries again every
/// few seconds, and the kubelet looks at its runtime as often.
const READY: Duration = Duration::from_secs(90);

/// A node with the bridge plugin works beside one of ours. A third has no CNI conf for as long
/// as its `seaway-proxy` is kept from the API server, and is not Ready.
#[test]
fn a_foreign_node_and_one_that_is_held_back() {
    if !require_root() {
        return;
    }
    let mut options = ClusterOptions::of(vec![
        NodeOptions::pod_network(Mode::Auto.flags()),
        NodeOptions::stock(),
        NodeOptions::pod_network(HELD_BACK),
    ]);
    options.ready = 2;
    let cluster = Cluster::start(&options).unwrap();
    let started = Instant::now();
    step("pods of a foreign node and ours", || {
        pods::create(&cluster)?;
        // The bridge, which answers a probe, is there since its node has a pod.
        until("pods reach each other", READY * 2, || {
            Ok(reach::between_pods(&cluster).is_ok().then_some(()))
        })?;
        reach::large(&cluster, reach::Mtu::MayBeLearned)?;
        reach::from_nodes(&cluster, &cluster.nodes()[..2])
    })
    .unwrap();
    step("held back from the API server for a minute", || {
        until("the minute is over", HELD_FOR * 2, || {
            unready(&cluster, &cluster.nodes()[2])?;
            Ok((started.elapsed() >= HELD_FOR).then_some(()))
        })
    })
    .unwrap();
    step("the API server answers", || let_through(&cluster)).unwrap();
}

fn let_through(cluster: &Cluster) -> Result<()> {
    let node = &cluster.nodes()[2];
    let mut redirect = cluster.command("iptables");
    let redirect = redirect
        .args([XTABLES_WAIT, "-t", "nat", "-A", "PREROUTING", "-p", "tcp"])
        .args(["--dport", "7443", "-j", "REDIRECT", "--to-ports", "6443"])
        .status();
    ensure!(redirect.context("start iptables")?.success(), "iptables");
    until("the node is Ready", READY, || {
        cluster.check_alive()?;
        Ok(cluster.is_ready(node)?.then_some(()))
    })?;
    ensure!(has_conf(node)?, "it is Ready without a CNI conf");
    ensure!(runtime_says(node, "NetworkReady")?, "the runtime disagrees");
    plugin_status(node)?;
    pods::create_one(cluster, "three", node.name(), false)?;
    cluster.wait_ready("three", pods::PATIENCE)?;
    let three = cluster.pod("three")?;
    until("three is reached", READY * 2, || {
        let mut curl = cluster.in_pod(&cluster.pod("one")?, "curl")?;
        let url = format!("http://{}:{}/hostname", three.ips[0], pods::PORT);
        let output = curl.args(["-sS", "--max-time", "2", &url]).output()?;
        Ok((output.stdout == b"three").then_some(()))
    })
}

/// Registered, not Ready, without a conf; and all agree on it.
fn unready(cluster: &Cluster, node: &Node) -> Result<()> {
    cluster.check_alive()?;
    ensure!(!cluster.is_ready(node)?, "{} is Ready", node.name());
    ensure!(!has_conf(node)?, "{} has a CNI conf", node.name());
    ensure!(!runtime_says(node, "NetworkReady")?, "the runtime is ready");
    let found = cluster.get(&["node", node.name()])?;
    let message = found["status"]["conditions"].to_string();
    ensure!(message.contains("cni plugin not initialized"), "{message}");
    Ok(())
}

fn has_conf(node: &Node) -> Result<bool> {
    let found = node.command("ls").arg("/etc/cni/net.d").output();
    Ok(!found.context("start ls")?.stdout.is_empty())
}

/// The plugin's own STATUS, with the conf that it was given.
fn plugin_status(node: &Node) -> Result<()> {
    let conf = node
        .command("cat")
        .arg("/etc/cni/net.d/05-seaway.conflist")
        .output()
        .context("start cat")?;
    let list: Value = serde_json::from_slice(&conf.stdout).context("parse the CNI conf")?;
    let mut conf = list["plugins"][0].clone();
    conf["name"] = list["name"].clone();
    conf["cniVersion"] = "1.1.0".into();
    let mut plugin = node.command("/opt/cni/bin/seaway-cni");
    let mut plugin = plugin
        .envs([("CNI_COMMAND", "STATUS"), ("CNI_PATH", "/opt/cni/bin")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the plugin")?;
    let mut stdin = plugin.stdin.take().context("its input was asked for")?;
    stdin
        .write_all(conf.to_string().as_bytes())
        .context("write to the plugin")?;
    drop(stdin);
    let said = plugin.wait_with_output().context("wait for the plugin")?;
    ensure!(said.status.success(), "STATUS: {said:?}");
    Ok(())
}

/// A condition of the container runtime, which asks the plugin's STATUS.
fn runtime_says(node: &Node, condition: &str) -> Result<bool> {
    let mut crictl = node.command(seaway_testbed::cluster::tool("crictl"));
    let output = crictl
        .args([
            "--runtime-endpoint=unix:///run/containerd/containerd.sock",
            "info",
        ])
        .output()
        .context("start crictl")?;
    let info: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let conditions = info["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|found| found["type"] == condition);
    let found = found.with_context(|| format!("no condition {condition}: {info}"))?;
    Ok(found["status"] == true)
}
