//! Agent and proxy die and stay dead for a while; traffic does not notice.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{PATIENCE, column, wait_for_answers};
use crate::cluster::{AGNHOST, Cluster, Role, say, until};

/// How long both daemons are left dead.
const DEAD: Duration = Duration::from_secs(30);
/// What a slow machine manages of the 50 new connections a second that are asked for, at least.
const NEW_PER_SECOND: u64 = 5;
/// A held connection is used about ten times a second.
const HELD_PER_SECOND: u64 = 3;

/// Prints a word per new connection; the pause is 20 ms.
const NEW_FROM_NODE: &str = "while :; do \
    if curl -sS -o /dev/null --max-time 2 http://$IP/hostname; then echo ok; else echo FAIL; fi; \
    sleep 0.02; done";
// Not `wget -T`: that of Debian's static busybox 1.35 ends with a segmentation fault.
const NEW_FROM_POD: &str = "while :; do \
    if timeout 2 wget -qO /dev/null http://$IP/hostname; then echo ok; else echo FAIL; fi; \
    usleep 20000; done";
/// Asks on one connection, for ever; whatever breaks it, even silence, prints FAIL.
const HELD_FROM_NODE: &str = r#"exec 3<>/dev/tcp/$IP/80
broken() { echo FAIL; exit; }
while :; do
  printf 'GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n' >&3 || broken
  length=0
  while :; do
    IFS= read -r -t 3 line <&3 || broken
    line=${line%$'\r'}
    [ -n "$line" ] || break
    case $line in Content-Length:*) length=${line##* };; esac
  done
  IFS= read -r -t 3 -N "$length" body <&3 || broken
  echo ok
  sleep 0.1
done"#;
// A body has no end of line, so the next answer's first line follows it at once.
const HELD_FROM_POD: &str = r"(while printf 'GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n'; do
    usleep 100000; done) | nc $IP 80 | while read -r line; do
  case $line in *HTTP/1.1\ 200*) echo ok;; esac
done
echo FAIL";

/// Kills agent and proxy of every node with SIGKILL and leaves them dead for 30 s, while a pod
/// and the node itself open a connection every 20 ms, on each node, and keep one open. None
/// fails. Then both are started again, and follow the API as before.
///
/// # Errors
/// What was expected and not so.
pub fn daemons_may_die(cluster: &mut Cluster) -> Result<()> {
    let ip = cluster.cluster_ip("web")?;
    cluster.apply(&witnesses(&ip))?;
    until("a witness on every node", PATIENCE, || {
        cluster.check_alive()?;
        let ready = cluster.get(&["daemonset", "witness"])?["status"]["numberReady"].as_u64();
        Ok((ready == u64::try_from(cluster.nodes().len()).ok()).then_some(()))
    })?;
    let mut loops = Loops::start(cluster, &ip)?;
    let before = loops.counts(cluster)?;
    let containers = containers(cluster)?;

    let killed = Instant::now();
    for index in 0..cluster.nodes().len() {
        cluster.node_mut(index).kill(Role::Agent)?;
        cluster.node_mut(index).kill(Role::Proxy)?;
    }
    until("agent and proxy have been dead for 30 s", DEAD * 2, || {
        Ok((killed.elapsed() >= DEAD).then_some(()))
    })?;
    // From the nodes at once: pods can be asked only when there is an agent again.
    loops.check_nodes("while both were dead")?;
    for index in 0..cluster.nodes().len() {
        cluster.node_mut(index).restart(Role::Agent)?;
        cluster.node_mut(index).restart(Role::Proxy)?;
    }
    recovered(cluster, &ip)?;

    let after = loops.counts(cluster)?;
    compare(&before, &after, killed.elapsed().as_secs())?;
    loops.stop()?;
    let now = self::containers(cluster)?;
    ensure!(
        containers.is_subset(&now),
        "containers were restarted: before {containers:?}, now {now:?}"
    );
    cluster
        .kubectl(&["delete", "daemonset", "witness", "--timeout=60s"])
        .map(drop)
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
    found.append(&mut column(cluster, "app=witness", path)?);
    Ok(found)
}

fn compare(before: &[Count], after: &[Count], seconds: u64) -> Result<()> {
    for (before, after) in before.iter().zip(after) {
        let done = after.ok.saturating_sub(before.ok);
        say(&format!(
            "{}: {done} ok in {seconds} s, {} failed",
            after.name, after.failed
        ));
        ensure!(after.failed == 0, "{}: {} failed", after.name, after.failed);
        let per_second = if after.held {
            HELD_PER_SECOND
        } else {
            NEW_PER_SECOND
        };
        ensure!(
            done >= per_second * seconds,
            "{}: {done} answers in {seconds} s are too few to mean something",
            after.name
        );
    }
    Ok(())
}

struct Count {
    name: String,
    held: bool,
    ok: u64,
    failed: u64,
}

impl Count {
    fn of(name: String, held: bool, text: &str) -> Self {
        let count = |word: &str| text.lines().filter(|line| *line == word).count() as u64;
        Self {
            name,
            held,
            ok: count("ok"),
            failed: count("FAIL"),
        }
    }
}

/// What runs on the nodes themselves; the pods' loops are their containers.
struct Loops {
    running: Vec<(String, bool, PathBuf, Child)>,
}

impl Loops {
    fn start(cluster: &Cluster, ip: &str) -> Result<Self> {
        let mut loops = Self {
            running: Vec::new(),
        };
        for node in cluster.nodes() {
            for (kind, held, script) in [
                ("new", false, NEW_FROM_NODE),
                ("held", true, HELD_FROM_NODE),
            ] {
                let name = format!("{kind} connections from {}", node.name());
                let path = cluster.dir().join(format!("{}-{kind}.out", node.name()));
                let out = File::create(&path).context("make the file of answers")?;
                let mut bash = node.command("bash");
                bash.args(["-c", script])
                    .env("IP", ip)
                    .stdin(Stdio::null())
                    .stdout(out);
                loops
                    .running
                    .push((name, held, path, bash.spawn().context("start bash")?));
            }
        }
        until("the nodes' connections work", PATIENCE, || {
            Ok(loops
                .node_counts()?
                .iter()
                .all(|count| count.ok > 0)
                .then_some(()))
        })?;
        Ok(loops)
    }

    fn node_counts(&self) -> Result<Vec<Count>> {
        let read = |(name, held, path, _): &(String, bool, PathBuf, Child)| {
            let text = fs::read_to_string(path).context("read the answers")?;
            Ok(Count::of(name.clone(), *held, &text))
        };
        self.running.iter().map(read).collect()
    }

    fn check_nodes(&self, when: &str) -> Result<()> {
        for count in self.node_counts()? {
            ensure!(
                count.failed == 0,
                "{}: {} failed {when}",
                count.name,
                count.failed
            );
        }
        Ok(())
    }

    fn counts(&self, cluster: &Cluster) -> Result<Vec<Count>> {
        let mut counts = self.node_counts()?;
        for pod in cluster.pods("app=witness")? {
            for (container, held) in [("new", false), ("held", true)] {
                let text = cluster.kubectl(&["logs", &pod, "-c", container])?;
                counts.push(Count::of(
                    format!("{container} connections from {pod}"),
                    held,
                    &text,
                ));
            }
        }
        Ok(counts)
    }

    fn stop(&mut self) -> Result<()> {
        for (name, _, _, mut child) in self.running.drain(..) {
            child.kill().with_context(|| format!("stop {name}"))?;
            child.wait().with_context(|| format!("wait for {name}"))?;
        }
        Ok(())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        // On the way out of a failure; with the node they would end anyway.
        self.stop().ok();
    }
}

/// A pod per node with both kinds of connections; ready when both have worked.
fn witnesses(ip: &str) -> String {
    let container = |name: &str, script: &str| {
        let script = serde_json::Value::from(script);
        format!(
            "      - name: {name}
        image: {AGNHOST}
        command: [sh, -c, {script}]
        env: [{{name: IP, value: \"{ip}\"}}]
"
        )
    };
    format!(
        "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: witness}}
spec:
  selector: {{matchLabels: {{app: witness}}}}
  template:
    metadata: {{labels: {{app: witness}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
{}{}",
        container("new", NEW_FROM_POD),
        container("held", HELD_FROM_POD)
    )
}
