//! One node: its namespaces, its containerd, and the agent, proxy and CNI plugin of choice.

mod containerd;
mod seaway;
mod stock;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::cgroups::NodeCgroups;
use super::control::ControlPlane;
use super::pki::Pki;
use super::place::{Daemon, Place};
use super::{Agent, Cni, Families, NodeOptions, Proxy, must, tool};
use crate::{Netns, PrivateMounts, uts_namespace};

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
    ips: Vec<String>,
    families: Families,
    options: NodeOptions,
    pod_network_args: Vec<String>,
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
        let families = control.families();
        let ips = families.node_ips(index);
        pki.node(&name, index)?;
        let netns = network(&name, &ips, control);
        let cgroups = NodeCgroups::new(&name)?;
        let mounts = PrivateMounts::new();
        // containerd gives its own to pods in the host's network.
        let uts = uts_namespace(&name).with_context(|| format!("give {name} its host name"))?;
        let namespaces = vec![netns.fd(), mounts.fd(), uts];
        let place = Place::new(namespaces, cgroups.system());
        let node_dir = dir.join(&name);
        let mut node = Self {
            daemons: BTreeMap::new(),
            cgroups,
            place,
            _mounts: mounts,
            netns,
            name,
            ips,
            families,
            options,
            pod_network_args: owned(options.pod_network),
            dir: node_dir,
            pki_dir: pki.path(""),
        };
        node.make_folders()?;
        node.restart(Role::Runtime)?;
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
            script.env("DNS", self.families.dns_ip()),
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
            Cni::None => Vec::new(),
        };
        for (name, program) in plugins {
            let link = self.dir.join("opt/cni/bin").join(name);
            symlink(&program, &link).with_context(|| format!("link {}", link.display()))?;
        }
        Ok(())
    }

    /// Starts agent and proxy, once there is an API for them.
    pub(super) fn start_daemons(&mut self) -> Result<()> {
        self.restart(Role::Agent)?;
        if self.options.proxy != Proxy::None {
            self.restart(Role::Proxy)?;
        }
        if self.has_pod_network_alone() {
            self.restart(Role::PodNetwork)?;
        }
        Ok(())
    }

    fn has_pod_network_alone(&self) -> bool {
        self.options.proxy == Proxy::KubeProxy && self.options.cni == Cni::Seaway
    }

    /// The program of a role, as it is to be started now.
    fn program(&self, role: Role) -> Result<Daemon> {
        Ok(match (role, self.options.agent, self.options.proxy) {
            (Role::Runtime, ..) => containerd::daemon(self, self.logs())?,
            (Role::Agent, Agent::Seaway, _) => seaway::agent(self),
            (Role::Agent, Agent::Kubelet, _) => stock::kubelet(self)?,
            (Role::Proxy, _, Proxy::SeawayEbpf) => seaway::proxy(self, "ebpf"),
            (Role::Proxy, _, Proxy::SeawayIptables) => seaway::proxy(self, "iptables"),
            (Role::Proxy, _, Proxy::KubeProxy) => stock::kube_proxy(self),
            (Role::Proxy, _, Proxy::None) => bail!("{} has no proxy of the fixture's", self.name),
            (Role::PodNetwork, ..) if self.has_pod_network_alone() => seaway::pod_network(self),
            (Role::PodNetwork, ..) => bail!("{} has no {role:?} of its own", self.name),
        })
    }

    /// Other flags for `seaway-proxy`, from its next start on.
    pub fn set_pod_network(&mut self, flags: &[&str]) {
        self.pod_network_args = owned(flags);
    }

    /// Gives it other addresses instead of those that it has, and starts its agent with them.
    ///
    /// # Errors
    /// When the agent does not run, or cannot be started.
    pub fn move_to(&mut self, ips: Vec<String>) -> Result<()> {
        self.kill(Role::Agent)?;
        for (plan, old) in self.families.plans().iter().zip(&self.ips) {
            self.netns
                .ip(&format!("addr del {old}{} dev eth0", plan.link_length));
        }
        self.ips = ips;
        address(&self.netns, &self.ips, self.families);
        self.restart(Role::Agent)
    }

    /// A route to another node's pods, where no pod network of ours makes it.
    pub(super) fn route_to_peer(&self, peer_ip: &str, cidr: &str) {
        if self.options.cni == Cni::Bridge {
            self.netns
                .ip(&format!("route replace {cidr} via {peer_ip}"));
        }
    }

    /// The configuration of stock CNI plugins; ours is written by `seaway-proxy`.
    pub(super) fn configure_cni(&self, cidrs: &[String]) -> Result<()> {
        if self.options.cni != Cni::Bridge {
            return Ok(());
        }
        // A kernel that has it as a module loads it for nobody.
        if !Path::new("/proc/sys/net/bridge").exists() {
            Command::new("modprobe").arg("br_netfilter").output().ok();
        }
        // Rules of kube-proxy must see what passes between two ports of the bridge.
        self.netns.sysctl("bridge/bridge-nf-call-iptables", "1");
        self.netns.sysctl("bridge/bridge-nf-call-ip6tables", "1");
        let mut write = self.place.command("sh");
        write.args([
            "-c",
            "mkdir -p /etc/cni/net.d && cat > /etc/cni/net.d/10-bridge.conflist",
        ]);
        let mut child = write.stdin(Stdio::piped()).spawn().context("start sh")?;
        let conf = stock::conflist(self, cidrs).to_string();
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

    /// Its first InternalIP.
    #[must_use]
    pub fn ip(&self) -> &str {
        self.ips.first().expect("every family has an address")
    }

    /// Its InternalIPs, one per family.
    #[must_use]
    pub fn ips(&self) -> &[String] {
        &self.ips
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

    /// Starts one of its programs, after a [`Self::kill`] again; its log goes on.
    ///
    /// # Errors
    /// When it has no such program, or it cannot be started.
    pub fn restart(&mut self, role: Role) -> Result<()> {
        let daemon = self.program(role)?.spawn(&self.place)?;
        self.daemons.insert(role, daemon);
        Ok(())
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
            "nsenter --net={} --mount=/proc/{pid}/ns/mnt --uts=/proc/{pid}/ns/uts sh -c 'echo 0 > {}/cgroup.procs; \
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
fn network(name: &str, ips: &[String], control: &ControlPlane) -> Netns {
    let netns = Netns::new(name);
    netns.sysctl("ipv6/conf/default/accept_dad", "0");
    let outside = control.netns();
    outside.ip(&format!(
        "link add {name} type veth peer name eth0 netns {}",
        netns.name()
    ));
    outside.ip(&format!("link set {name} master br0 up"));
    netns.ip("link set eth0 up");
    address(&netns, ips, control.families());
    netns.sysctl("ipv4/ip_forward", "1");
    netns
}

/// Addresses and default routes, as on real nodes; beyond the control plane there is nothing.
fn address(netns: &Netns, ips: &[String], families: Families) {
    for (plan, ip) in families.plans().iter().zip(ips) {
        netns.ip(&format!("addr add {ip}{} dev eth0", plan.link_length));
        let (everything, control) = (plan.everything, plan.control);
        netns.ip(&format!("route replace {everything} via {control}"));
    }
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(ToString::to_string).collect()
}
