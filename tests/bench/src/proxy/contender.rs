//! Who programs Services, and one of them at work.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seaway_testbed::{Cgroup2, Join, PrivateMounts};
use serde_json::json;

use super::meter::Meter;
use super::place::{API, Place};
use super::world::NODE;

/// How long it may take to end by itself.
const GRACE: Duration = Duration::from_secs(25);
/// Where it tells how it is.
const HEALTHZ: &str = "127.0.0.1:10256";
/// Pods, as every proxy is told.
const CLUSTER_CIDR: &str = "10.128.0.0/9";

/// A program in one of its modes.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// In the table.
    pub(super) name: &'static str,
    /// Said of one that was not done in time.
    pub(super) given_up: &'static str,
    program: PathBuf,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Ours,
    Nftables,
    Iptables,
}

impl Contender {
    pub(super) fn ours(program: &Path) -> Self {
        Self {
            name: "ours",
            given_up: "ours, given up",
            program: program.to_owned(),
            mode: Mode::Ours,
        }
    }

    /// kube-proxy in both of its modes; none if it is not built.
    pub(super) fn peers() -> Vec<Self> {
        let program = seaway_testbed::cache_dir().join("bin/kube-proxy");
        if !program.is_file() {
            return Vec::new();
        }
        let peer = |mode, name, given_up| Self {
            name,
            given_up,
            program: program.clone(),
            mode,
        };
        vec![
            peer(
                Mode::Nftables,
                "kube-proxy nftables",
                "kube-proxy nftables, given up",
            ),
            peer(
                Mode::Iptables,
                "kube-proxy iptables",
                "kube-proxy iptables, given up",
            ),
        ]
    }

    /// How many endpoints the node's rules translate to.
    pub(super) fn targets(&self, place: &Place) -> Result<usize> {
        match self.mode {
            // A map of a Service's endpoints: `numgen random mod 2 map { 0 : 10.0.0.1 . 80, …`
            Mode::Nftables => place.count(&["nft", "list", "table", "ip", "kube-proxy"], " : 10."),
            Mode::Ours | Mode::Iptables => {
                place.count(&["iptables-nft-save", "-t", "nat"], "-j DNAT")
            }
        }
    }

    /// Starts it on the node.
    pub(super) fn start(&self, place: &Place) -> Result<Running> {
        let config = self.configure(place)?;
        let (cgroup, mounts) = (Cgroup2::new("proxy"), PrivateMounts::new());
        let log = place.path(self.name);
        let output = File::options().create(true).append(true).open(&log);
        let output = output.context("open a log")?;
        let join = Join::new()
            .netns(&place.node)
            .mounts(&mounts)
            .cgroup(&cgroup);
        let mut command = join.command(&self.program);
        self.flags(&mut command, place, &config);
        let meter = Meter::start(&cgroup);
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share a log")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        Ok(Running {
            started,
            meter,
            child,
            log,
            _mounts: mounts,
            _cgroup: cgroup,
        })
    }

    /// The kubeconfig, and for kube-proxy a file with its settings.
    fn configure(&self, place: &Place) -> Result<PathBuf> {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{API}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        let file = place.path("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).context("write a kubeconfig")?;
        let mode = match self.mode {
            Mode::Ours => return Ok(file),
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
        };
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": mode,
            // The stand-in speaks JSON only.
            "clientConnection": {"kubeconfig": file, "contentType": "application/json"},
            "hostnameOverride": NODE,
            "clusterCIDR": CLUSTER_CIDR,
            "healthzBindAddress": HEALTHZ,
            // Read-only in a network namespace.
            "conntrack": {"maxPerCore": 0, "min": 0},
        });
        let file = place.path(mode);
        std::fs::write(&file, config.to_string()).context("write kube-proxy's settings")?;
        Ok(file)
    }

    fn flags(&self, command: &mut Command, place: &Place, config: &Path) {
        if self.mode != Mode::Ours {
            command.arg("--config").arg(config);
            return;
        }
        command.args(["run", "--service-proxy", "iptables", "--pod-network", "off"]);
        command.args(["--node-name", NODE, "--cluster-cidr", CLUSTER_CIDR]);
        command.args(["--healthz-bind-address", HEALTHZ]);
        command.arg("--kubeconfig").arg(config);
        for (flag, name) in [
            ("--run-dir", "run"),
            ("--cni-conf-dir", "net.d"),
            ("--bpffs-dir", "bpf"),
        ] {
            command.arg(flag).arg(place.path(name));
        }
        // A plain HTTP server is reached without a single CA certificate.
        command.env("SSL_CERT_FILE", "/dev/null");
    }
}

/// One at work; killed with its children when the guard goes.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) started: Instant,
    pub(super) meter: Meter,
    child: Child,
    log: PathBuf,
    _mounts: PrivateMounts,
    _cgroup: Cgroup2,
}

impl Running {
    /// Fails if it has ended, with what it said last.
    pub(super) fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("look after the proxy")? {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            bail!("it ended with {status}:\n{last}");
        }
        Ok(())
    }

    /// Ends it; what is in the kernel stays.
    pub(super) fn stop(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("a process id")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("stop the proxy")?;
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if self
                .child
                .try_wait()
                .context("wait for the proxy")?
                .is_some()
            {
                return Ok(());
            }
            super::pause(Duration::from_millis(20));
        }
        bail!("it does not end on SIGTERM")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
