//! A CNI plugin and how a runtime calls it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// A plugin with its configuration.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) program: PathBuf,
    pub(crate) conf: Value,
    /// Where it finds others.
    path: PathBuf,
}

/// What one attachment is called.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) id: String,
    pub(crate) netns: PathBuf,
}

/// Pools as large as a big node's.
const V4: &str = "10.83.0.0/16";
const V6: &str = "fd00:83::/64";

/// Same for everybody.
const MTU: u32 = 1500;

/// Which peer, and of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Ptp,
    PtpMasq,
    PtpDual,
    Bridge,
}

/// The reference plugins, and where they are.
#[derive(Clone, Debug)]
pub(crate) struct Peers(PathBuf);

impl Peers {
    /// `None`: they are not built.
    pub(crate) fn find() -> Option<Self> {
        let dir = seaway_testbed::cache_dir().join("bin");
        let all = ["ptp", "bridge", "host-local"];
        let there = all.iter().all(|name| dir.join(name).is_file());
        there.then_some(Self(dir))
    }

    pub(crate) fn plugin(&self, peer: Peer, dir: &Path) -> Plugin {
        let name = if peer == Peer::Bridge {
            "bridge"
        } else {
            "ptp"
        };
        let mut ranges = vec![json!([{"subnet": V4}])];
        if peer == Peer::PtpDual {
            ranges.push(json!([{"subnet": V6}]));
        }
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": "peer", "type": name, "mtu": MTU,
            "ipMasq": peer == Peer::PtpMasq,
            "ipam": {
                "type": "host-local",
                "ranges": ranges,
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": dir.join("host-local"),
            },
        });
        if peer == Peer::Bridge {
            conf["bridge"] = json!("cni0");
            conf["isGateway"] = json!(true);
        }
        Plugin {
            program: self.0.join(name),
            conf,
            path: self.0.clone(),
        }
    }
}

/// Ours on a node with this range for pods.
pub(crate) fn of_node(range: &str, mtu: u32, dir: &Path) -> Plugin {
    let mut plugin = ours(false, dir);
    plugin.conf["mtu"] = json!(mtu);
    plugin.conf["ipam"]["ranges"] = json!([{"subnet": range}]);
    plugin
}

/// Ours, with its records below `dir`.
pub(crate) fn ours(dual: bool, dir: &Path) -> Plugin {
    let mut ranges = vec![json!({"subnet": V4})];
    if dual {
        ranges.push(json!({"subnet": V6}));
    }
    Plugin {
        program: seaway_testbed::bin("seaway-cni"),
        conf: json!({
            "cniVersion": "1.0.0", "name": "seaway", "type": "seaway-cni", "mtu": MTU,
            "ipam": {"type": "seaway", "ranges": ranges, "dataDir": dir.join("cni")},
        }),
        path: PathBuf::new(),
    }
}

impl Plugin {
    /// The same with a port of the node for the pod.
    pub(crate) fn with_port(&self, port: u16) -> Self {
        let mut plugin = self.clone();
        plugin.conf["runtimeConfig"] = json!({"portMappings": [
            {"hostPort": port, "containerPort": 80, "protocol": "tcp"},
        ]});
        plugin
    }

    fn environment(&self, command: &mut Command, verb: &str, pod: &Pod) {
        command.env_clear().envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &pod.id),
            ("CNI_IFNAME", "eth0"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=pod",
            ),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ]);
        command
            .env("CNI_NETNS", &pod.netns)
            .env("CNI_PATH", &self.path);
    }

    /// Calls it in the calling thread's network namespace, and tells the time in
    /// milliseconds from before its start until it is waited for, as a runtime sees it.
    pub(crate) fn call(&self, verb: &str, pod: &Pod) -> Result<f64> {
        let mut command = Command::new(&self.program);
        self.environment(&mut command, verb, pod);
        self.run(command, verb, pod).map(|(time, _)| time)
    }

    /// The address that `ADD` gives.
    pub(crate) fn add(&self, pod: &Pod) -> Result<String> {
        let mut command = Command::new(&self.program);
        self.environment(&mut command, "ADD", pod);
        let (_, stdout) = self.run(command, "ADD", pod)?;
        let result: Value = serde_json::from_slice(&stdout).context("read the result of ADD")?;
        let address = result["ips"][0]["address"]
            .as_str()
            .context("ADD gave no address")?;
        Ok(address.split('/').next().unwrap_or(address).to_owned())
    }

    /// The most memory that a call takes, in MB.
    pub(crate) fn weigh(&self, verb: &str, pod: &Pod) -> Result<f64> {
        let mut command = crate::weigh::command(&self.program)?;
        self.environment(&mut command, verb, pod);
        let (_, stdout) = self.run(command, verb, pod)?;
        let text = String::from_utf8_lossy(&stdout);
        let kib: f64 = text.lines().last().unwrap_or_default().trim().parse()?;
        Ok(kib * 1024.0 / 1e6)
    }

    fn run(&self, mut command: Command, verb: &str, pod: &Pod) -> Result<(f64, Vec<u8>)> {
        let conf = self.conf.to_string();
        let start = || format!("start {}", self.program.display());
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that fails early does not read it; its exit status tells.
            stdin.write_all(conf.as_bytes()).ok();
        }
        let output = child.wait_with_output().with_context(start)?;
        let time = started.elapsed().as_secs_f64() * 1e3;
        if !output.status.success() {
            bail!(
                "{} {verb} {}: {}: {}{}",
                self.program.display(),
                pod.id,
                output.status,
                String::from_utf8_lossy(&output.stdout).trim(),
                String::from_utf8_lossy(&output.stderr).trim(),
            );
        }
        Ok((time, output.stdout))
    }
}
