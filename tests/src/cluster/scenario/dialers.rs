//! Dialers on every node: in a pod's place, and in the node's own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::PATIENCE;
use crate::cluster::{Cluster, Daemon, Node, Role, until};
use crate::peer::Dialed;
use crate::{Join, cgroup2_mount};

/// From one new connection to the next.
const EVERY: Duration = Duration::from_millis(20);
/// How long a dialer that is told to stop may still wait for its last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Programs that open connections to a Service, until this is dropped.
pub(super) struct Dialers {
    running: Vec<Dialer>,
}

struct Dialer {
    name: String,
    out: PathBuf,
    child: Child,
}

impl Dialers {
    /// Starts two for each node: one where the node's own programs run, one where the pod of
    /// that node with the label `app=prober` does. Returns when all have been answered.
    pub(super) fn start(cluster: &Cluster, address: SocketAddr) -> Result<Self> {
        let program = crate::bin("seaway-peer");
        let mut dialers = Self {
            running: Vec::new(),
        };
        for node in cluster.nodes() {
            let name = format!("{} itself", node.name());
            dialers.add(cluster.dir(), name, node.command(&program), address)?;
            let pod = prober_on(cluster, node.name())?;
            let command = place_of_pod(node, &pod.uid)?.command(&program);
            let name = format!("{} on {}", pod.name, node.name());
            dialers.add(cluster.dir(), name, command, address)?;
        }
        until("every dialer is answered", PATIENCE, || {
            let counts = dialers.counts()?;
            let ok = |dialed: &Dialed| dialed.new > 0 && dialed.held > 0;
            Ok(counts.iter().all(|(_, dialed)| ok(dialed)).then_some(()))
        })?;
        Ok(dialers)
    }

    fn add(
        &mut self,
        dir: &Path,
        name: String,
        mut command: Command,
        address: SocketAddr,
    ) -> Result<()> {
        let out = dir.join(format!("dialer-{}.log", self.running.len()));
        let file = File::create(&out).with_context(|| format!("make {}", out.display()))?;
        let child = command
            .args(["dial", &address.to_string(), &EVERY.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .with_context(|| format!("start the dialer of {name}"))?;
        self.running.push(Dialer { name, out, child });
        Ok(())
    }

    /// What each has seen so far, by its name.
    ///
    /// # Errors
    /// When one has seen a failure, with what it said.
    pub(super) fn counts(&self) -> Result<Vec<(String, Dialed)>> {
        let read = |dialer: &Dialer| Ok((dialer.name.clone(), dialer.read()?));
        self.running.iter().map(read).collect()
    }

    /// Ends them, and returns what each has seen in the end.
    ///
    /// # Errors
    /// As [`Dialers::counts`], and when one does not end.
    pub(super) fn stop(mut self) -> Result<Vec<(String, Dialed)>> {
        for dialer in &mut self.running {
            dialer.child.stdin.take();
        }
        for Dialer { name, child, .. } in &mut self.running {
            until(&format!("the dialer of {name} ends"), LAST_ANSWERS, || {
                child.try_wait().context("wait for a dialer")
            })?;
        }
        self.counts()
    }
}

impl Drop for Dialers {
    fn drop(&mut self) {
        for Dialer { child, .. } in &mut self.running {
            // It may have ended, which is what is wanted here.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Dialer {
    fn read(&self) -> Result<Dialed> {
        let file = File::open(&self.out).context("open what a dialer says")?;
        let mut dialed = Dialed::default();
        for line in BufReader::new(file).lines() {
            let line = line.context("read what a dialer says")?;
            ensure!(!line.starts_with("FAIL "), "{}: {line}", self.name);
            // The last line may be half written.
            dialed = line.parse().unwrap_or(dialed);
        }
        Ok(dialed)
    }
}

struct Prober {
    name: String,
    uid: String,
}

fn prober_on(cluster: &Cluster, node: &str) -> Result<Prober> {
    let selector = format!("spec.nodeName={node}");
    let path = "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}";
    let found = cluster.kubectl(&[
        "get",
        "pods",
        "-l",
        "app=prober",
        "--field-selector",
        &selector,
        "-o",
        path,
    ])?;
    let (name, uid) = found.split_once(' ').context("no prober on the node")?;
    Ok(Prober {
        name: name.to_owned(),
        uid: uid.to_owned(),
    })
}

/// The network namespace and the cgroup of a pod: what makes a connection the pod's.
fn place_of_pod(node: &Node, uid: &str) -> Result<Join> {
    let runtime = node.daemon(Role::Runtime).and_then(Daemon::pid);
    let runtime = runtime.context("the node's containerd does not run")?;
    let netns = |process: &Path| fs::read_link(process.join("ns/net"));
    let outside = netns(&PathBuf::from(format!("/proc/{runtime}"))).context("find containerd")?;
    // systemd's names have no dashes.
    let names = [uid.to_owned(), uid.replace('-', "_")];
    for entry in fs::read_dir("/proc").context("list processes")? {
        let process = entry.context("list processes")?.path();
        // Not a process, or one that has ended meanwhile.
        let Ok(cgroups) = fs::read_to_string(process.join("cgroup")) else {
            continue;
        };
        let is_of_pod = names.iter().any(|name| cgroups.contains(name));
        // What serves the pod (a shim) may be in its cgroup, but not on its network.
        if !is_of_pod || netns(&process).map_or(true, |found| found == outside) {
            continue;
        }
        let v2 = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
        let v2 = v2.context("the kernel has no cgroup2")?;
        let netns = File::open(process.join("ns/net")).context("open the pod's namespace")?;
        let cgroup = cgroup2_mount().join(v2);
        return Ok(Join::new().cgroup_dir(&cgroup).namespace(netns.into()));
    }
    bail!("no process is in a cgroup of pod {uid}")
}
