//! One node: its namespaces, its containerd, and the agent, proxy and CNI plugin of choice.

mod containerd;
mod seaway;
mod stock;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::cgroups::NodeCgroups;
use super::control::ControlPlane;
use super::pki::Pki;
use super::place::{Daemon, Place};
use super::{Agent, CONTROL_IP, Cni, DNS_IP, NodeOptions, Proxy, must, tool};
use crate::{Netns, PrivateMounts};

/// A program of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// containerd
    Runtime,
    /// `seaway-agent` or the kubelet
    Agent,
    /// `seaway-proxy` or kube-proxy
    Proxy,
    /// `seaway-proxy` for pod routes only, beside kube-proxy
    PodNetwork,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    // Dropped in this order: programs, then containers, then what they ran in.
    daemons: BTreeMap<Role, Daemon>,
    cgroups: NodeCgroups,
    place: Place,
    _mounts: PrivateMounts,
    netns: Netns,
    name: String,
    ip: String,
    options: NodeOptions,
    dir: PathBuf,
    pki_dir: PathBuf,
}

impl Node {
    /// Makes its namespaces and starts containerd in them.
    pub(super) fn start(
        dir: &Path,
        pki: &Pki,
        control: &ControlPlane,
        index: usize,
        options: NodeOptions,
    ) -> Result<Self> {
        let name = format!("node-{}", index + 1);
        let ip = format!("172.30.0.{}", index + 11);
        pki.node(&name, &ip)?;
        let netns = network(&name, &ip, control);
        let cgroups = NodeCgroups::new(&name)?;
        let mounts = PrivateMounts::new();
        let place = Place::new(vec![netns.fd(), mounts.fd()], cgroups.system());
        let node_dir = dir.join(&name);
        let mut node = Self {
            daemons: BTreeMap::new(),
            cgroups,
            place,
            _mounts: mounts,
            netns,
            name,
            ip,
            options,
            dir: node_dir,
            pki_dir: pki.path(""),
        };
        node.make_folders()?;
        let runtime = containerd::daemon(&node, dir)?;
        node.run(Role::Runtime, runtime)?;
        Ok(node)
    }

    /// Gives it the usual paths, with nothing of the machine's and nothing seen outside.
    fn make_folders(&self) -> Result<()> {
        let make = |path: &str| {
            let path = self.dir.join(path);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))
        };
        for path in [
            "etc",
            "etc-work",
            "log/pods",
            "log/containers",
            "opt/cni/bin",
        ] {
            make(path)?;
        }
        for path in ["containerd", "kubelet", "seaway", "seaway-agent"] {
            make(&format!("lib/{path}"))?;
        }
        let mut script = self.place.command("sh");
        script
            .arg("-c")
            .arg(include_str!("node/folders.sh"))
            .arg("sh")
            .arg(&self.dir);
        must(
            script.env("DNS", DNS_IP),
            &format!("mount the folders of {}", self.name),
        )?;
        let plugins: Vec<(&str, PathBuf)> = match self.options.cni {
            Cni::Seaway => {
                let plugin = crate::bin("seaway-cni");
                vec![("seaway-cni", plugin.clone()), ("loopback", plugin)]
            }
            Cni::Bridge => {
                let names = ["bridge", "host-local", "loopback", "portmap"];
                names.into_iter().map(|name| (name, tool(name))).collect()
            }
        };
        for (name, program) in plugins {
            let link = self.dir.join("opt/cni/bin").join(name);
            symlink(&program, &link).with_context(|| format!("link {}", link.display()))?;
        }
        Ok(())
    }

    /// Starts agent and proxy, once there is an API for them.
    pub(super) fn start_daemons(&mut self) -> Result<()> {
        let agent = match self.options.agent {
            Agent::Seaway => seaway::agent(self),
            Agent::Kubelet => stock::kubelet(self)?,
        };
        self.run(Role::Agent, agent)?;
        let proxy = match self.options.proxy {
            Proxy::SeawayEbpf => seaway::proxy(self, "ebpf"),
            Proxy::SeawayIptables => seaway::proxy(self, "iptables"),
            Proxy::KubeProxy => stock::kube_proxy(self),
        };
        self.run(Role::Proxy, proxy)?;
        if self.options.proxy == Proxy::KubeProxy && self.options.cni == Cni::Seaway {
            let routes = seaway::proxy(self, "off");
            self.run(Role::PodNetwork, routes)?;
        }
        Ok(())
    }

    fn run(&mut self, role: Role, daemon: Daemon) -> Result<()> {
        let daemon = daemon.spawn(&self.place)?;
        self.daemons.insert(role, daemon);
        Ok(())
    }

    /// A route to another node's pods, where no pod network of ours makes it.
    pub(super) fn route_to_peer(&self, peer_ip: &str, cidr: &str) {
        if self.options.cni == Cni::Bridge {
            self.netns
                .ip(&format!("route replace {cidr} via {peer_ip}"));
        }
    }

    /// The configuration of stock CNI plugins; ours is written by `seaway-proxy`.
    pub(super) fn configure_cni(&self, cidr: &str) -> Result<()> {
        if self.options.cni == Cni::Seaway {
            return Ok(());
        }
        // Rules of kube-proxy must see what passes between two ports of the bridge.
        self.netns.sysctl("bridge/bridge-nf-call-iptables", "1");
        let mut write = self.place.command("sh");
        write.args([
            "-c",
            "mkdir -p /etc/cni/net.d && cat > /etc/cni/net.d/10-bridge.conflist",
        ]);
        let mut child = write.stdin(Stdio::piped()).spawn().context("start sh")?;
        let conf = stock::conflist(cidr).to_string();
        let mut stdin = child.stdin.take().expect("it was asked for");
        std::io::Write::write_all(&mut stdin, conf.as_bytes()).context("write the CNI conf")?;
        drop(stdin);
        let status = child.wait().context("wait for sh")?;
        anyhow::ensure!(
            status.success(),
            "write the CNI conf of {}: {status}",
            self.name
        );
        Ok(())
    }

    pub(super) fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.daemons.values()
    }

    /// Its name in the API.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its InternalIP.
    #[must_use]
    pub fn ip(&self) -> &str {
        &self.ip
    }

    /// A command on the node: in its namespaces and in its cgroup, as the node's own programs
    /// and a logged-in user would be.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.place.command(program)
    }

    /// One of its programs.
    #[must_use]
    pub fn daemon(&self, role: Role) -> Option<&Daemon> {
        self.daemons.get(&role)
    }

    /// Kills one of its programs with SIGKILL.
    ///
    /// # Errors
    /// When it has no such program, or it does not run.
    pub fn kill(&mut self, role: Role) -> Result<()> {
        let daemon = self.daemons.get_mut(&role);
        let daemon = daemon.with_context(|| format!("{} has no {role:?}", self.name))?;
        daemon.kill().map(drop)
    }

    /// Starts one of its programs again.
    ///
    /// # Errors
    /// When it has no such program, or it cannot be started.
    pub fn restart(&mut self, role: Role) -> Result<()> {
        let daemon = self.daemons.get_mut(&role);
        let daemon = daemon.with_context(|| format!("{} has no {role:?}", self.name))?;
        daemon.start(&self.place)
    }

    /// How a person enters it while it runs.
    #[must_use]
    pub fn how_to_enter(&self) -> String {
        let pid = self
            .daemons
            .get(&Role::Runtime)
            .and_then(Daemon::pid)
            .unwrap_or(0);
        format!(
            "nsenter --net={} --mount=/proc/{pid}/ns/mnt sh -c 'echo 0 > {}/cgroup.procs; \
             exec env PATH={}:$PATH bash'",
            self.netns.path().display(),
            self.cgroups.system().display(),
            crate::cache_dir().join("bin").display()
        )
    }

    fn logs(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    fn pki(&self, file: &str) -> String {
        self.pki_dir.join(file).display().to_string()
    }
}

/// A namespace with one link to the control plane's bridge.
fn network(name: &str, ip: &str, control: &ControlPlane) -> Netns {
    let netns = Netns::new(name);
    let outside = control.netns();
    outside.ip(&format!(
        "link add {name} type veth peer name eth0 netns {}",
        netns.name()
    ));
    outside.ip(&format!("link set {name} master br0 up"));
    netns.ip(&format!("addr add {ip}/24 dev eth0"));
    netns.ip("link set eth0 up");
    // As on real nodes; beyond the control plane's namespace there is nothing.
    netns.ip(&format!("route add default via {CONTROL_IP}"));
    netns.sysctl("ipv4/ip_forward", "1");
    netns
}
