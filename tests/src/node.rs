//! One node without a control plane: containerd, our CNI plugin, and
//! `seaway-agent standalone` with the proxy inside.
//!
//! ```text
//!  outside 172.30.0.1 ──eth0── node 172.30.0.11 ──sw…── pods
//!  (no way on)                 containerd, agent, seaway-cni
//! ```
//! Nothing of the host is touched: see [`Place`]. All paths inside are the defaults.

mod cgroups_v1;
mod containerd;
mod daemon;
mod objects;
mod place;
mod traffic;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub(crate) use cgroups_v1::mounts as cgroup_v1_mounts;
pub use containerd::{Containerd, Flavour, SOCKET};
pub use daemon::Daemon;
pub use objects::{PodView, ServiceView};
pub use place::{NODE_IP, OUTSIDE_IP, Place};
pub use traffic::all_answer;

use crate::{bin, images, unique_name};

/// How a node is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of everything that it makes on the host.
    pub name: String,
    /// Which containerd serves it.
    pub flavour: Flavour,
    /// `--service-proxy`: `ebpf`, `iptables` or `off`.
    pub service_proxy: String,
}

impl Config {
    /// A node for a test, with a unique name.
    #[must_use]
    pub fn new(hint: &str, service_proxy: &str) -> Self {
        Self {
            name: unique_name(hint),
            flavour: Flavour::default(),
            service_proxy: service_proxy.to_owned(),
        }
    }
}

/// Where the node's pods get their addresses from.
pub const POD_CIDR: &str = "10.244.1.0/24";
/// Where the node's Services get their addresses from.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The script in the node's folder that lets a person in.
const ENTER: &str = "enter";
/// The node's name.
const NODE_NAME: &str = "node-1";

/// A running node. When it is dropped, all of it ends and goes; if the test is failing, the
/// ends of the logs are printed before.
#[derive(Debug)]
pub struct Node {
    // In the order in which they are dropped.
    agent: Option<Daemon>,
    containerd: Option<Containerd>,
    config: Config,
    place: Place,
}

impl Node {
    /// Makes the place, starts containerd and loads the images; the agent comes with
    /// [`Self::start_agent`].
    ///
    /// # Errors
    /// When something is not installed or does not come up.
    pub fn new(config: Config) -> Result<Self> {
        let mut node = Self::without_containerd(config)?;
        node.start_containerd()?;
        Ok(node)
    }

    /// Makes the place, with nothing running in it.
    ///
    /// # Errors
    /// When something of that name exists, or the kernel refuses.
    pub fn without_containerd(config: Config) -> Result<Self> {
        let place = Place::new(&config.name, NODE_NAME)?;
        install_cni(&place)?;
        std::fs::write(place.dir().join(ENTER), enter_script(&place)).context("write enter")?;
        std::fs::create_dir(place.dir().join("manifests")).context("make the manifests' folder")?;
        Ok(Self {
            agent: None,
            containerd: None,
            config,
            place,
        })
    }

    /// Starts containerd and loads the images.
    ///
    /// # Errors
    /// When it is not installed or does not come up.
    pub fn start_containerd(&mut self) -> Result<()> {
        let containerd = Containerd::start(&self.place, self.config.flavour)?;
        for archive in [images::pause(&[])?, images::busybox(&[])?] {
            containerd.import(&self.place, &archive)?;
        }
        self.containerd = Some(containerd);
        Ok(())
    }

    /// Where it runs.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// `ctr`, for what Kubernetes has in its containerd.
    #[must_use]
    pub fn ctr(&self) -> std::process::Command {
        self.config.flavour.ctr(&self.place)
    }

    /// Starts the agent, or starts it again; it is not waited for.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start_agent(&mut self) -> Result<()> {
        if let Some(agent) = &mut self.agent
            && agent.running().is_ok()
        {
            bail!("the agent runs already");
        }
        let mut command = self.place.command(bin("seaway-agent"));
        command.arg("standalone").arg(self.manifests());
        command.args(["--node-name", NODE_NAME, "--node-ip", NODE_IP]);
        command.args(["--service-proxy", &self.config.service_proxy]);
        command.args(["--pod-cidr", POD_CIDR, "--service-cidr", SERVICE_CIDR]);
        command.args([
            "--cgroup-root",
            &self.place.cgroup_root(),
            "--proxy-cgroup-root",
        ]);
        command.arg(self.place.cgroup());
        command.env(
            "SEAWAY_LOG",
            std::env::var("SEAWAY_LOG").unwrap_or_else(|_| "debug".into()),
        );
        self.agent = Some(Daemon::start("seaway-agent", command, &self.agent_log())?);
        Ok(())
    }

    /// The running agent.
    ///
    /// # Panics
    /// Before it has been started.
    #[track_caller]
    pub fn agent(&mut self) -> &mut Daemon {
        self.agent.as_mut().expect("start_agent comes first")
    }

    /// The proxy mode that the agent is started with from now on.
    pub fn set_service_proxy(&mut self, mode: &str) {
        mode.clone_into(&mut self.config.service_proxy);
    }

    /// The folder of its manifests.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.place.dir().join("manifests")
    }

    /// Puts a manifest in place, at once and whole, as a careful editor does.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_manifest(&self, file: &str, text: &str) -> Result<()> {
        let path = self.manifests().join(file);
        let partial = self.manifests().join(format!(".{file}.partial"));
        std::fs::write(&partial, text)
            .and_then(|()| std::fs::rename(&partial, &path))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Takes a manifest away.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove_manifest(&self, file: &str) -> Result<()> {
        let path = self.manifests().join(file);
        std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))
    }

    /// Runs a program on the node itself.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        let (program, args) = words.split_first().expect("a command has a name");
        let output = self.place.command(program).args(args).output();
        output.with_context(|| format!("start {program}"))
    }

    /// Stops what still has to be stopped by the proxy's own means: removes what it has put
    /// into the kernel, as a user does who changes the mode.
    ///
    /// # Errors
    /// When `seaway-proxy cleanup` fails, with what it said.
    pub fn cleanup_proxy(&self) -> Result<()> {
        let mut command = self.place.command(bin("seaway-proxy"));
        command
            .arg("cleanup")
            .arg("--cgroup-root")
            .arg(self.place.cgroup());
        let done = command.output().context("start seaway-proxy")?;
        if !done.status.success() {
            bail!(
                "seaway-proxy cleanup: {}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
        Ok(())
    }

    /// How a person gets a shell on the node; a command may follow.
    #[must_use]
    pub fn enter_hint(&self) -> String {
        format!("sh {}", self.place.dir().join(ENTER).display())
    }

    /// Lets the node run on after the end of this process.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    fn agent_log(&self) -> PathBuf {
        self.place.dir().join("agent.log")
    }
}

/// Works for as long as anything runs on the node, whichever programs were started again.
fn enter_script(place: &Place) -> String {
    let name = place.name();
    let processes = place.cgroup().join("daemons/cgroup.procs");
    let processes = processes.display();
    format!(
        r#"#!/bin/sh
# A shell on the node {name}, or the given command.
set -eu
# Mounts and host name have no file of their own: those of any process that is there.
read -r pid <{processes} || {{ echo "nothing runs on {name}" >&2; exit 1; }}
# The eBPF service proxy serves the processes of the node's cgroup, so this becomes one.
echo $$ >{processes}
exec nsenter --net=/run/netns/{name} --mount=/proc/$pid/ns/mnt --uts=/proc/$pid/ns/uts "$@"
"#
    )
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["containerd.log", "agent.log"] {
            let path = self.place.dir().join(name);
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("---- the end of {name}\n{}", tail.join("\n"));
        }
        if std::env::var_os("SEAWAY_KEEP").is_some() {
            eprintln!(
                "---- SEAWAY_KEEP: enter it by `{}`, end by Enter",
                self.enter_hint()
            );
            std::io::stdin().read_line(&mut String::new()).ok();
        } else {
            eprintln!("---- to look around in it, run the test again with SEAWAY_KEEP=1");
        }
    }
}

/// Puts our plugin where containerd looks, also under the name that containerd insists on.
fn install_cni(place: &Place) -> Result<()> {
    let dir = place.dir().join("opt/cni/bin");
    std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    copy(&bin("seaway-cni"), &dir.join("seaway-cni"))?;
    std::os::unix::fs::symlink("seaway-cni", dir.join("loopback")).context("link loopback")?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to)
        .with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// How long a test waits for something on a node: long beside what it takes on a busy machine,
/// and in an emulated one beside another, where three pods have taken more than a minute.
pub const PATIENCE: Duration = Duration::from_mins(4);
