//! A real Kubernetes on one machine: control plane, registry and DNS in a network namespace
//! that has no way out, and nodes beside it on a bridge.
//!
//! ```text
//!  control: etcd kube-apiserver kube-controller-manager kube-scheduler coredns registry kubectl
//!     br0 172.30.0.1 ──┬── node-1 eth0 172.30.0.11   containerd, agent, proxy, pods
//!                      └── node-2 eth0 172.30.0.12   the same
//! ```
//!
//! Each node has its own host name, and its own network and mount namespace (with the usual paths: `/run`, `/etc/cni`,
//! `/opt/cni/bin`, `/var/lib`, `/sys/fs/bpf` are its own) and its own cgroups. Agent, proxy and
//! CNI plugin of a node are ours or the stock ones, so that the two can be compared.
//!
//! It deliberately does not talk to the API itself: `kubectl` does, as for a user.
//! The programs come from `cargo xtask setup`.

mod cgroups;
mod control;
mod dialers;
mod dns;
mod families;
mod kubectl;
mod node;
mod options;
mod pki;
mod place;
mod pods;
mod questions;
mod ready;
mod registry;
mod report;
pub mod scenario;
mod wait;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::temporary;
use control::ControlPlane;
use pki::Pki;

pub use dialers::Dialers;
pub use families::{Families, host_port};
pub use node::{Node, Role};
pub use options::{Agent, ClusterOptions, Cni, Images, NodeOptions, Proxy};
pub use place::Daemon;
pub use pods::Pod;
pub use questions::web_deployment;
pub use wait::until;

/// An image with the program of that name as entry point, and a shell beside it.
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

/// How long a cluster may take until every node is ready. Generous: a busy machine.
const START_LIMIT: Duration = Duration::from_mins(3);

/// A running cluster. Everything of it ends with this guard.
///
/// When it is dropped by a failing test it prints what its programs said last. With
/// `SEAWAY_KEEP` set it is then left running, and how to enter its namespaces is printed.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: nodes before what they talk to, the folder last.
    nodes: Vec<Node>,
    control: ControlPlane,
    pki: Pki,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts it, and returns when all nodes are Ready.
    ///
    /// # Errors
    /// When a part is missing (run `cargo xtask setup`), ends early or does not get ready; the
    /// ends of all logs have then been printed.
    pub fn start(options: &ClusterOptions) -> Result<Self> {
        let started = Instant::now();
        cgroups::sweep();
        let dir = temporary("cluster").context("make the cluster's folder")?;
        let pki = Pki::create(dir.path(), options.families)?;
        let control = ControlPlane::start(dir.path(), options.families, &options.images)?;
        let mut cluster = Self {
            nodes: Vec::new(),
            control,
            pki,
            dir,
        };
        match cluster.start_nodes(options) {
            Ok(()) => {
                say(&format!(
                    "its nodes are Ready after {} s",
                    started.elapsed().as_secs()
                ));
                Ok(cluster)
            }
            Err(error) => {
                report::print(&cluster);
                Err(error)
            }
        }
    }

    fn start_nodes(&mut self, options: &ClusterOptions) -> Result<()> {
        if !options.api_last {
            self.control.start_api(self.dir.path(), &self.pki)?;
        }
        // Containers can start before there is an API to ask.
        for (index, node) in options.nodes.iter().enumerate() {
            let node = Node::start(self.dir.path(), &self.pki, &self.control, index, *node)?;
            self.nodes.push(node);
        }
        if options.api_last {
            self.start_daemons()?;
            self.wait_api_missed()?;
            self.control.start_api(self.dir.path(), &self.pki)?;
        }
        self.control.complete(self.dir.path(), &self.pki)?;
        if !options.api_last {
            self.start_daemons()?;
        }
        self.connect_pods()?;
        dns::publish(self)?;
        self.wait_nodes_ready(options.ready)
    }

    fn start_daemons(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Node::start_daemons)
    }

    /// Until every agent and proxy has said that it cannot connect; none may end for that.
    fn wait_api_missed(&self) -> Result<()> {
        for node in &self.nodes {
            for role in [Role::Agent, Role::Proxy] {
                let daemon = node.daemon(role).context("it was started")?;
                let what = format!("{} says that the API server is away", daemon.name());
                until(&what, Duration::from_secs(30), || {
                    self.check_alive()?;
                    let log = std::fs::read_to_string(daemon.log()).context("read its log")?;
                    let said = log.to_lowercase().contains("connection refused");
                    Ok(said.then_some(()))
                })?;
            }
        }
        Ok(())
    }

    /// Which addresses it has.
    #[must_use]
    pub fn families(&self) -> Families {
        self.control.families()
    }

    /// Fails when a program of the cluster has ended that nobody has stopped.
    ///
    /// # Errors
    /// Naming the program.
    pub fn check_alive(&self) -> Result<()> {
        for daemon in self.daemons() {
            daemon.check_alive()?;
        }
        Ok(())
    }

    fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.control
            .daemons()
            .chain(self.nodes.iter().flat_map(Node::daemons))
    }

    /// The nodes, in order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node, to stop and start its programs.
    ///
    /// # Panics
    /// When there is none of that index.
    #[must_use]
    #[track_caller]
    pub fn node_mut(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// Makes an image one that the nodes can pull, and gives the name that it has for them.
    /// Once for a cluster, and not where it speaks IPv6 alone.
    ///
    /// # Errors
    /// When the archive has no image of that name, or the registry does not take it.
    pub fn publish_image(&mut self, archive: &Path, name: &str) -> Result<String> {
        self.control.publish(self.dir.path(), archive, name)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki.kubeconfig("admin")
    }

    /// The folder with its logs and configuration, which ends with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A command beside the control plane, such as a client outside of the cluster.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.control.place().command(program)
    }

    /// How a person enters the namespace of the control plane.
    #[must_use]
    pub fn how_to_enter(&self) -> String {
        format!(
            "nsenter --net={} env KUBECONFIG={} PATH={}:$PATH bash",
            self.control.netns().path().display(),
            self.kubeconfig().display(),
            crate::cache_dir().join("bin").display()
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        report::print(self);
        if std::env::var_os("SEAWAY_KEEP").is_some() {
            say("SEAWAY_KEEP is set: the cluster stays; the next test run removes it");
            for node in self.nodes.drain(..) {
                std::mem::forget(node);
            }
            self.control.keep();
            let kept = tempfile::tempdir().map(|empty| std::mem::replace(&mut self.dir, empty));
            if let Ok(dir) = kept {
                say(&format!("its folder is {}", dir.keep().display()));
            }
        }
    }
}

/// A program that `cargo xtask setup` has built.
///
/// # Panics
/// When it is not there.
#[must_use]
#[track_caller]
pub fn tool(name: &str) -> PathBuf {
    let path = crate::cache_dir().join("bin").join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo xtask setup`",
        path.display()
    );
    path
}

/// Progress: written past libtest's capture, since a silent minute looks like a hang.
pub(crate) fn say(message: &str) {
    use std::io::Write as _;
    // Nobody listens any more: nothing to do about it.
    writeln!(std::io::stderr(), "   cluster: {message}").ok();
}

/// Runs a command to its end.
fn must(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("start {what}"))?;
    if !output.status.success() {
        bail!(
            "{what}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
