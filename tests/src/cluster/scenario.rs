//! What every cluster must be able to do, whatever its nodes are made of.
//!
//! The steps are in the order of one story and each expects what the one before it has left.

mod leftovers;
mod outage;
mod refusals;
mod verbs;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{AGNHOST, Cluster, say, until, web_deployment};

pub use leftovers::logs_go_with_their_pod;
pub use outage::daemons_may_die;
pub use refusals::refusals_are_told;
pub use verbs::kubectl_works;

/// For a Deployment of two pods whose image is there, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// From the API's answer until the last node's kernel knows.
const PROPAGATION: Duration = Duration::from_secs(15);
/// With this many answers of two alike endpoints, one is missing by chance once in 10^9 times.
const QUESTIONS: u32 = 30;

/// Runs a step and says how long it took.
///
/// # Errors
/// Those of the step, with its name.
pub fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    say(&format!("{name} ..."));
    work().with_context(|| name.to_owned())?;
    say(&format!(
        "{name}: ok after {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// A Deployment becomes available on two nodes, and its ClusterIP is answered by both replicas
/// when asked from each node and from a pod on each node, which may be one of them.
///
/// # Errors
/// What was expected and not so.
pub fn service_answers(cluster: &Cluster) -> Result<()> {
    cluster.apply(&web_deployment("web", AGNHOST, 2))?;
    cluster.apply(&probers(AGNHOST))?;
    cluster.wait_available("web", PATIENCE)?;
    let nodes: BTreeSet<String> = column(cluster, "app=web", "{.spec.nodeName}")?;
    ensure!(
        nodes.len() == cluster.nodes().len(),
        "web runs on {nodes:?} only"
    );
    wait_probers(cluster)?;
    let ip = cluster.cluster_ip("web")?;
    let expected: BTreeSet<String> = cluster.pods("app=web")?.into_iter().collect();
    wait_for_answers(cluster, &ip, &expected)?;
    for pod in cluster.pods("app=web")? {
        let found = hosts_seen_by_pod(cluster, &pod, &ip)?;
        ensure!(
            found == expected,
            "{pod} reaches {found:?}, which should be {expected:?}"
        );
    }
    let prober = first_prober(cluster)?;
    let name = "web.default.svc.cluster.local";
    let found = cluster.exec(&prober, &["nslookup", name])?;
    ensure!(
        found.contains(&ip),
        "the cluster's DNS says of {name}: {found}"
    );
    Ok(())
}

/// Without endpoints connections are refused at once; with endpoints again they are answered.
///
/// # Errors
/// What was expected and not so.
pub fn scaling_works(cluster: &Cluster) -> Result<()> {
    let ip = cluster.cluster_ip("web")?;
    cluster.kubectl(&["scale", "deployment", "web", "--replicas=0"])?;
    cluster.wait_gone("app=web", PATIENCE)?;
    for node in cluster.nodes() {
        until(&format!("{} is refused", node.name()), PROPAGATION, || {
            Ok(node.is_refused(&ip, 80)?.then_some(()))
        })?;
    }
    for pod in cluster.pods("app=prober")? {
        until(&format!("{pod} is refused"), PROPAGATION, || {
            let address = format!("{ip}:80");
            let asked = cluster.exec(&pod, &["/agnhost", "connect", "--timeout=2s", &address]);
            Ok(asked
                .err()
                .and_then(|error| error.to_string().contains("REFUSED").then_some(())))
        })?;
    }
    cluster.kubectl(&["scale", "deployment", "web", "--replicas=2"])?;
    cluster.wait_available("web", PATIENCE)?;
    let expected = cluster.pods("app=web")?.into_iter().collect();
    wait_for_answers(cluster, &ip, &expected)
}

/// Until every node and every prober is answered by exactly these pods.
fn wait_for_answers(cluster: &Cluster, ip: &str, expected: &BTreeSet<String>) -> Result<()> {
    for node in cluster.nodes() {
        let mut last = String::new();
        let what = format!("{} reaches {expected:?}", node.name());
        let done = until(&what, PROPAGATION, || {
            let found = node.hosts_behind(&format!("{ip}:80"), QUESTIONS);
            last = format!("{found:?}");
            Ok(found.is_ok_and(|found| &found == expected).then_some(()))
        });
        done.with_context(|| format!("last answer: {last}"))?;
    }
    for pod in cluster.pods("app=prober")? {
        let mut last = String::new();
        let done = until(&format!("{pod} reaches {expected:?}"), PROPAGATION, || {
            let found = hosts_seen_by_pod(cluster, &pod, ip);
            last = format!("{found:?}");
            Ok(found.is_ok_and(|found| &found == expected).then_some(()))
        });
        done.with_context(|| format!("last answer: {last}"))?;
    }
    Ok(())
}

fn hosts_seen_by_pod(cluster: &Cluster, pod: &str, ip: &str) -> Result<BTreeSet<String>> {
    // Not `wget -T`: that of Debian's static busybox 1.35 ends with a segmentation fault.
    let ask = format!(
        "set -e; for i in $(seq {QUESTIONS}); do timeout 2 wget -qO- http://{ip}/hostname; echo; done"
    );
    let text = cluster.exec(pod, &["sh", "-c", &ask])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// One pod per node that does nothing: a place to ask from.
fn probers(image: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: prober}}
spec:
  selector: {{matchLabels: {{app: prober}}}}
  template:
    metadata: {{labels: {{app: prober}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: idle
        image: {image}
        command: [sh, -c, 'sleep 100000 & wait']
"
    )
}

fn wait_probers(cluster: &Cluster) -> Result<()> {
    until("a prober on every node", PATIENCE, || {
        cluster.check_alive()?;
        let ready = cluster.get(&["daemonset", "prober"])?["status"]["numberReady"].as_u64();
        Ok((ready == u64::try_from(cluster.nodes().len()).ok()).then_some(()))
    })
}

fn first_prober(cluster: &Cluster) -> Result<String> {
    cluster
        .pods("app=prober")?
        .into_iter()
        .next()
        .context("no prober")
}

/// One value per pod with a label.
fn column(cluster: &Cluster, label: &str, path: &str) -> Result<BTreeSet<String>> {
    let template = format!("jsonpath={{range .items[*]}}{path}{{\"\\n\"}}{{end}}");
    let text = cluster.kubectl(&["get", "pods", "-l", label, "-o", &template])?;
    Ok(text.lines().map(str::to_owned).collect())
}
