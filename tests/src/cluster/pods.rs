//! Pods as places to ask from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Cluster, Daemon, Node, Role};
use crate::{Join, cgroup2_mount};

/// A pod that has its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// In the namespace `default`
    pub name: String,
    /// The name of its node
    pub node: String,
    /// One per family
    pub ips: Vec<String>,
    uid: String,
}

impl Cluster {
    /// A pod of the namespace `default`.
    ///
    /// # Errors
    /// When there is none of that name, or it is on no node.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        let found = self.get(&["pod", name])?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let ips = found["status"]["podIPs"].as_array();
        Ok(Pod {
            name: name.to_owned(),
            node: text(&found["spec"]["nodeName"]).context("it is on no node")?,
            ips: ips
                .into_iter()
                .flatten()
                .filter_map(|ip| text(&ip["ip"]))
                .collect(),
            uid: text(&found["metadata"]["uid"]).context("no uid in the API's answer")?,
        })
    }

    /// The node of that name.
    ///
    /// # Errors
    /// When it has none.
    pub fn node(&self, name: &str) -> Result<&Node> {
        let mut nodes = self.nodes().iter();
        let node = nodes.find(|node| node.name() == name);
        node.with_context(|| format!("there is no node {name}"))
    }

    /// A command on a pod's network and in its cgroup: what makes a connection the pod's.
    /// Program and files are the machine's.
    ///
    /// # Errors
    /// When the pod does not run.
    pub fn in_pod(&self, pod: &Pod, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let place = place(self.node(&pod.node)?, &pod.uid);
        let place = place.with_context(|| format!("enter pod {}", pod.name))?;
        Ok(place.command(program))
    }
}

fn place(node: &Node, uid: &str) -> Result<Join> {
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
