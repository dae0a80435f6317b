//! A node that has nothing but the plugin, and how a runtime calls it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use seaway_testbed::{Netns, bin};
use serde_json::{Value, json};

/// A node without anything but the plugin; 172.30.0.11 is its own address.
pub(crate) struct Node {
    pub(crate) netns: Netns,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) conf: Value,
    /// `seaway-cni`, or another name that it is called by.
    pub(crate) program: PathBuf,
    /// Where other plugins are.
    pub(crate) cni_path: PathBuf,
}

impl Node {
    pub(crate) fn new(range: &str) -> Self {
        Self::with_ranges(&[range])
    }

    /// Pods get an address of each family that has a range.
    pub(crate) fn with_ranges(ranges: &[&str]) -> Self {
        let netns = Netns::new("node");
        netns.ip("addr add 172.30.0.11/32 dev lo");
        netns.ip("addr add fd00:172::11/128 dev lo nodad");
        let ranges: Vec<Value> = ranges.iter().map(|r| json!({"subnet": r})).collect();
        let dir = tempfile::tempdir().unwrap();
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "seaway",
            "type": "seaway-cni",
            "mtu": 1450,
            "ipam": {
                "type": "seaway",
                "ranges": ranges,
                "dataDir": dir.path().join("cni"),
            },
        });
        Self {
            netns,
            dir,
            conf,
            program: bin("seaway-cni"),
            cni_path: PathBuf::from("/opt/cni/bin"),
        }
    }

    pub(crate) fn command(&self, verb: &str, id: &str, pod_path: &str) -> Command {
        let mut command = self.netns.command(&self.program);
        command.env_clear().envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", pod_path),
            ("CNI_IFNAME", "eth0"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
            ),
        ]);
        command.env("CNI_PATH", &self.cni_path);
        command
    }

    pub(crate) fn call(&self, verb: &str, id: &str, pod_path: &str) -> Output {
        feed(self.command(verb, id, pod_path), &self.conf)
    }

    #[track_caller]
    pub(crate) fn add(&self, id: &str, pod: &Netns) -> Value {
        success(&self.call("ADD", id, pod_path(pod)))
    }

    #[track_caller]
    pub(crate) fn del(&self, id: &str, pod_path: &str) {
        let output = self.call("DEL", id, pod_path);
        assert!(output.status.success(), "{}", text(&output));
        assert!(output.stdout.is_empty(), "{}", text(&output));
    }

    #[track_caller]
    pub(crate) fn fails(&self, verb: &str, id: &str, pod_path: &str) -> Value {
        failure(&self.call(verb, id, pod_path))
    }

    /// Names of the records, without the hints.
    pub(crate) fn records(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut dirs = vec![self.dir.path().join("cni/seaway")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    names.push(entry.file_name().into_string().unwrap());
                }
            }
        }
        names.retain(|name| name.contains('='));
        names.sort();
        names
    }

    /// Where the records of this boot are.
    pub(crate) fn record_dir(&self) -> PathBuf {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        self.dir.path().join("cni/seaway").join(boot.trim())
    }

    /// No pod's interface, route, neighbour entry or record.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let links = self.netns.ip_json("link");
        assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
        assert_eq!(self.netns.ip_json("route show proto 83"), json!([]));
        assert_eq!(self.netns.ip_json("-6 route show proto 83"), json!([]));
        assert_eq!(self.netns.ip_json("neigh"), json!([]));
        assert_eq!(self.records(), [""; 0]);
    }
}

/// A packet goes there and one comes back: nobody listens on the port, and the
/// other host says so. From loopback this is also an ICMP answer.
#[track_caller]
pub(crate) fn assert_reaches(from: &Netns, address: &str) {
    let target = if address.contains(':') {
        format!("[{address}]:9")
    } else {
        format!("{address}:9")
    };
    // One datagram may be lost, or late on an emulated machine; one that is black-holed loses all.
    let refused = |_| {
        let kind = from.ask_udp(&target).unwrap_err().kind();
        (kind == std::io::ErrorKind::ConnectionRefused).then_some(kind)
    };
    assert!((0..5).find_map(refused).is_some(), "{address}");
}

pub(crate) fn pod_path(pod: &Netns) -> &str {
    pod.path().to_str().unwrap()
}

pub(crate) fn feed(command: Command, conf: &Value) -> Output {
    start(command, conf).wait_with_output().unwrap()
}

/// Starts a call, gives it its configuration and does not wait for its end.
pub(crate) fn start(mut command: Command, conf: &Value) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A plugin that fails early does not read it.
    stdin.write_all(conf.to_string().as_bytes()).ok();
    drop(stdin);
    child
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[track_caller]
pub(crate) fn success(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn failure(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1), "{}", text(output));
    let error: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)));
    assert!(
        error["code"].is_u64() && error["msg"].is_string() && error["cniVersion"].is_string(),
        "{error}"
    );
    error
}

/// The first one.
pub(crate) fn address(result: &Value) -> String {
    addresses(result).remove(0)
}

pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| {
        let (address, length) = ip["address"].as_str().unwrap().split_once('/').unwrap();
        assert_eq!(length, if address.contains(':') { "128" } else { "32" });
        address.to_owned()
    })
    .collect()
}
