//! Who reaches whom, and as whom.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::bin;
use seaway_testbed::cluster::{Cluster, Node, Pod, host_port, until};

use crate::pods::{self, HOST_PORT, PATIENCE, PORT};

/// Where somebody outside of the cluster listens.
const OUTSIDE_PORT: u16 = 7000;
/// So large that it needs several packets, of any MTU here.
const LARGE: usize = 6000;

/// Whether a pod's packets may turn out to be too large for the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mtu {
    /// Those of its own MTU pass.
    Fits,
    /// A smaller one may be learned from the node, by ICMP.
    MayBeLearned,
}

/// All of it.
pub(crate) fn everything(cluster: &Cluster) -> Result<()> {
    between_pods(cluster)?;
    large(cluster, Mtu::Fits)?;
    services(cluster)?;
    outside(cluster)?;
    from_nodes(cluster, cluster.nodes())?;
    host_ports(cluster)?;
    kubectl(cluster)
}

/// Each pod is reached by each other, and seen by its own address.
pub(crate) fn between_pods(cluster: &Cluster) -> Result<()> {
    let pods = pods::all(cluster)?;
    for (from, to) in pairs(&pods) {
        for (own, ip) in from.ips.iter().zip(&to.ips) {
            let said = ask(
                cluster.in_pod(from, "curl")?,
                &format!("http://{}/clientip", host_port(ip, PORT)),
            )
            .with_context(|| format!("{} to {}", from.name, to.name))?;
            let seen: SocketAddr = said.parse().context("an address and port")?;
            let own: IpAddr = own.parse().context("the pod's address")?;
            ensure!(
                seen.ip() == own,
                "{} sees {} as {seen}, which has {own}",
                to.name,
                from.name
            );
        }
    }
    Ok(())
}

/// What does not fit into one packet passes, in both directions.
pub(crate) fn large(cluster: &Cluster, mtu: Mtu) -> Result<()> {
    let pods = pods::all(cluster)?;
    let word = "x".repeat(LARGE);
    for (from, to) in pairs(&pods) {
        for ip in &to.ips {
            let url = format!("http://{}/echo?msg={word}", host_port(ip, PORT));
            let said = ask(cluster.in_pod(from, "curl")?, &url)
                .with_context(|| format!("large, {} to {}", from.name, to.name))?;
            ensure!(said == word, "{} bytes came back", said.len());
            let mut route = cluster.in_pod(from, "ip")?;
            let route = route.args(["route", "get", ip]).output();
            let route = route.context("start ip")?;
            let route = String::from_utf8_lossy(&route.stdout);
            ensure!(
                mtu == Mtu::MayBeLearned || !route.contains("expires"),
                "{} has learned a smaller MTU to {}: {route}",
                from.name,
                to.name
            );
        }
    }
    Ok(())
}

/// A ClusterIP is answered by its pod, wherever it is asked, and has a name.
fn services(cluster: &Cluster) -> Result<()> {
    let pods = pods::all(cluster)?;
    for (from, to) in pairs(&pods) {
        for ip in cluster_ips(cluster, &format!("to-{}", to.name))? {
            let url = format!("http://{}/hostname", host_port(&ip, 80));
            // kube-proxy learns of an endpoint a little later than we do.
            until(&format!("{} reaches {url}", from.name), PATIENCE, || {
                let said = ask(cluster.in_pod(from, "curl")?, &url);
                Ok(said.is_ok_and(|said| said == to.name).then_some(()))
            })?;
            let node = cluster.node(&from.node)?;
            let said = ask(node.command("curl"), &url)?;
            ensure!(said == to.name, "{} answers for {}", said, to.name);
        }
    }
    for (from, to) in [("one", "to-two:80"), ("two", "to-one:80")] {
        let words = ["/agnhost", "connect", "--timeout=5s", to];
        cluster.exec(from, &words).context("by the name in DNS")?;
    }
    Ok(())
}

fn cluster_ips(cluster: &Cluster, service: &str) -> Result<Vec<String>> {
    let path = "jsonpath={.spec.clusterIPs[*]}";
    let found = cluster.kubectl(&["get", "service", service, "-o", path])?;
    Ok(found.split(' ').map(str::to_owned).collect())
}

/// Somebody outside of the cluster takes a pod for its node.
pub(crate) fn outside(cluster: &Cluster) -> Result<()> {
    let peer = bin("seaway-peer");
    for (index, control) in cluster.families().control_ips().enumerate() {
        let address = host_port(control, OUTSIDE_PORT);
        let mut server = cluster.command(&peer);
        let mut server = server
            .args(["serve", "tcp", &address, "outside"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("start a server outside")?;
        let asked = pods::all(cluster).and_then(|pods| {
            pods.iter()
                .try_for_each(|pod| seen_outside(cluster, pod, index, &address))
        });
        server.kill().context("end the server outside")?;
        server.wait().context("wait for the server outside")?;
        asked?;
    }
    Ok(())
}

fn seen_outside(cluster: &Cluster, pod: &Pod, family: usize, address: &str) -> Result<()> {
    let node: IpAddr = cluster.node(&pod.node)?.ips()[family].parse()?;
    let said = until(
        &format!("{} is answered outside", pod.name),
        PATIENCE,
        || {
            let mut peer = cluster.in_pod(pod, bin("seaway-peer"))?;
            let output = peer.args(["ask", "tcp", address]).output()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(output.status.success().then_some(said))
        },
    )?;
    let seen = said.split(' ').nth(1).context("a client in the answer")?;
    let seen: SocketAddr = seen.parse().context("the client's address")?;
    ensure!(
        seen.ip() == node,
        "outside, {} is seen as {seen}, not as its node {node}",
        pod.name
    );
    Ok(())
}

/// These nodes reach every pod.
pub(crate) fn from_nodes(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    for pod in pods::all(cluster)? {
        for ip in &pod.ips {
            for node in nodes {
                hostname(node, &host_port(ip, PORT), &pod.name)?;
            }
        }
    }
    Ok(())
}

/// A pod's port on its node is reached from the other nodes.
fn host_ports(cluster: &Cluster) -> Result<()> {
    for name in ["one", "two"] {
        let pod = cluster.pod(name)?;
        let node = cluster.node(&pod.node)?;
        let others = cluster.nodes().iter();
        for other in others.filter(|other| other.name() != node.name()) {
            for ip in node.ips() {
                hostname(other, &host_port(ip, HOST_PORT), name)?;
            }
        }
    }
    Ok(())
}

fn hostname(node: &Node, address: &str, expected: &str) -> Result<()> {
    let said = node.ask(address)?;
    ensure!(
        said == expected,
        "{said} answers at {address}, not {expected}"
    );
    Ok(())
}

fn kubectl(cluster: &Cluster) -> Result<()> {
    for pod in pods::all(cluster)? {
        let said = cluster.exec(&pod.name, &["hostname"])?;
        ensure!(said.trim() == pod.name, "exec in {}: {said}", pod.name);
        let said = cluster.kubectl(&["logs", &pod.name])?;
        ensure!(said.contains("8080"), "logs of {}: {said}", pod.name);
    }
    Ok(())
}

fn pairs(pods: &[Pod]) -> impl Iterator<Item = (&Pod, &Pod)> {
    let all = pods
        .iter()
        .flat_map(move |from| pods.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| from.name != to.name)
}

/// Asks with curl, wherever that is to run.
fn ask(mut curl: Command, url: &str) -> Result<String> {
    let output = curl
        .args(["-sS", "--fail", "--max-time", "4", url])
        .output()
        .context("start curl")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
