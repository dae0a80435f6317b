//! `cnitool`, which is libcni as runtimes use it, and the reference plugins in
//! one list with ours. All are built by `cargo xtask setup`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Output};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Join, Netns, PrivateMounts, require_root};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, assert_reaches, success, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// A node whose runtime is `cnitool`; what that and the plugins keep under
/// /var/lib and /run is the node's own.
struct Runtime {
    node: Node,
    mounts: PrivateMounts,
    confs: PathBuf,
}

impl Runtime {
    /// `None`: a plugin that is needed is not built.
    fn new(needed: &[&str]) -> Option<Self> {
        let bin = seaway_testbed::cache_dir().join("bin");
        for program in ["cnitool"].iter().chain(needed) {
            if !bin.join(program).is_file() {
                seaway_testbed::skip(&format!("needs {program}: cargo xtask setup"));
                return None;
            }
        }
        let node = Node::with_ranges(&BOTH);
        let confs = node.dir.path().join("net.d");
        std::fs::create_dir(&confs).unwrap();
        let mounts = PrivateMounts::new().tmpfs("/var/lib");
        Some(Self {
            node,
            mounts,
            confs,
        })
    }

    fn write(&self, plugins: &[Value]) {
        let list = json!({
            "cniVersion": "1.0.0",
            "cniVersions": ["0.4.0", "1.0.0", "1.1.0"],
            "name": "seaway",
            "plugins": plugins,
        });
        let path = self.confs.join("05-seaway.conflist");
        std::fs::write(path, list.to_string()).unwrap();
    }

    /// Ours as an element of a list.
    fn ours(&self) -> Value {
        json!({
            "type": "seaway-cni",
            "mtu": 1450,
            "ipam": {
                "type": "seaway",
                "ranges": [{"subnet": BOTH[0]}, {"subnet": BOTH[1]}],
                "dataDir": self.node.dir.path().join("cni"),
            },
        })
    }

    fn call(&self, verb: &str, pod: &str, capabilities: &Value) -> Output {
        let bin = seaway_testbed::cache_dir().join("bin");
        let mut command: Command = Join::new()
            .netns(&self.node.netns)
            .mounts(&self.mounts)
            .command(bin.join("cnitool"));
        let ours = self.node.program.parent().unwrap();
        command
            .env("CNI_PATH", format!("{}:{}", ours.display(), bin.display()))
            .env("NETCONFPATH", &self.confs)
            .env("CAP_ARGS", capabilities.to_string())
            .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web")
            .args([verb, "seaway", pod]);
        command.output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, verb: &str, pod: &Pod, capabilities: &Value) -> Output {
        let output = self.call(verb, &pod.path, capabilities);
        assert!(output.status.success(), "{verb}: {}", text(&output));
        output
    }
}

/// A namespace with a name that holds in every mount namespace.
struct Pod {
    netns: Netns,
    path: String,
    _fd: OwnedFd,
}

impl Pod {
    fn new() -> Self {
        let netns = Netns::new("pod");
        let fd = netns.fd();
        let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        Self {
            netns,
            path,
            _fd: fd,
        }
    }
}

#[test]
fn cnitool_drives_every_verb() {
    if !require_root() {
        return;
    }
    let Some(runtime) = Runtime::new(&[]) else {
        return;
    };
    let (mut ours, nothing) = (runtime.ours(), json!({}));
    let names = ["portMappings", "bandwidth", "ips", "mac", "dns", "aliases"];
    ours["capabilities"] = names
        .iter()
        .map(|name| ((*name).to_owned(), json!(true)))
        .collect();
    runtime.write(&[ours]);
    let (pod, other) = (Pod::new(), Pod::new());
    runtime.succeeds("status", &pod, &nothing);
    let capabilities = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 100_000_000, "ingressBurst": 8_000_000},
        "ips": ["10.244.1.77/24"], "mac": "02:00:00:00:00:77",
        "dns": {"servers": ["10.96.0.10"]}, "aliases": ["db"],
    });
    let result = success(&runtime.succeeds("add", &pod, &capabilities));
    assert_eq!(result["cniVersion"], "1.1.0");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:77");
    assert_eq!(result["dns"], json!({"nameservers": ["10.96.0.10"]}));
    let _web = pod.netns.serve(Tcp, "[::]:80", "web");
    let node = &runtime.node.netns;
    assert_eq!(node.ask_tcp("172.30.0.11:8080").unwrap(), "web");
    assert_eq!(node.ask_tcp("10.244.1.77:80").unwrap(), "web");
    runtime.succeeds("check", &pod, &capabilities);
    runtime.succeeds("add", &other, &nothing);
    pod.netns.ip("route del default");
    let refused = runtime.call("check", &pod.path, &capabilities);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("the default route via 169.254.1.1 is gone"));
    runtime.succeeds("del", &pod, &capabilities);
    runtime.succeeds("del", &pod, &capabilities);
    assert_eq!(elements(&runtime.node), [""; 0]);
    assert_eq!(runtime.node.records().len(), 2);
    // libcni deletes what it has in its cache; then cnitool calls GC without the
    // list of what is valid, which is not an empty one.
    let collected = runtime.call("gc", &other.path, &nothing);
    assert!(!collected.status.success());
    let words = text(&collected);
    assert!(
        words.contains("cni.dev/valid-attachments: is required"),
        "{words}"
    );
    runtime.node.assert_empty();
}

/// One after the other behind ours, then all of them.
#[test]
fn the_reference_plugins_can_follow_in_the_chain() {
    if !require_root() {
        return;
    }
    let names = ["tuning", "bandwidth", "firewall", "portmap", "sbr"];
    let Some(runtime) = Runtime::new(&names) else {
        return;
    };
    let followers = [
        // Its `mac` would cut the pod off, see docs/decisions.md.
        json!({"type": "tuning", "mtu": 1400, "promisc": true,
            "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}}),
        json!({"type": "bandwidth", "ingressRate": 50_000_000, "ingressBurst": 4_000_000,
            "egressRate": 50_000_000, "egressBurst": 4_000_000}),
        json!({"type": "firewall", "backend": "iptables"}),
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "sbr"}),
    ];
    let chains = followers.iter().map(|one| vec![one.clone()]);
    for chain in chains.chain([followers[..4].to_vec()]) {
        let kinds: Vec<&str> = chain.iter().map(|p| p["type"].as_str().unwrap()).collect();
        eprintln!("Chain: {kinds:?}");
        runtime.write(&[vec![runtime.ours()], chain.clone()].concat());
        let capabilities = json!({"portMappings":
            [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
        let pod = Pod::new();
        let result = success(&runtime.succeeds("add", &pod, &capabilities));
        let address = result["ips"][0]["address"].as_str().unwrap();
        let address = address.split('/').next().unwrap();
        if kinds.contains(&"tuning") {
            let eth0 = &pod.netns.ip_json("link show eth0")[0];
            assert_eq!(eth0["mtu"], 1400);
        }
        assert_reaches(&runtime.node.netns, address);
        // With sbr there are routes only for who has chosen his address.
        let from = format!("route get 172.30.0.11 from {address}");
        assert!(pod.netns.ip(&from).contains("via 169.254.1.1"), "{from}");
        if !kinds.contains(&"sbr") {
            assert_reaches(&pod.netns, "172.30.0.11");
        }
        if kinds.contains(&"portmap") {
            let _web = pod.netns.serve(Tcp, "[::]:80", "web");
            let through = runtime.node.netns.ask_tcp("172.30.0.11:8080");
            assert_eq!(through.unwrap(), "web");
        }
        runtime.succeeds("check", &pod, &capabilities);
        runtime.succeeds("del", &pod, &capabilities);
        runtime.node.assert_empty();
    }
}

/// Ours takes the result of those before it, and adds to it.
#[test]
fn ours_can_come_later_in_the_chain() {
    if !require_root() {
        return;
    }
    let Some(runtime) = Runtime::new(&["loopback", "tuning"]) else {
        return;
    };
    let later = [
        json!({"type": "loopback"}),
        runtime.ours(),
        json!({"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}}),
    ];
    runtime.write(&later);
    let (pod, nothing) = (Pod::new(), json!({}));
    let result = success(&runtime.succeeds("add", &pod, &nothing));
    let interfaces = result["interfaces"].as_array().unwrap().iter();
    let interfaces: Vec<&str> = interfaces.map(|i| i["name"].as_str().unwrap()).collect();
    assert_eq!((interfaces[0], interfaces[2]), ("lo", "eth0"), "{result}");
    let ips = result["ips"].as_array().unwrap();
    let of_eth0: Vec<&Value> = ips.iter().filter(|ip| ip["interface"] == 2).collect();
    assert_eq!(of_eth0.len(), 2, "{result}");
    assert_reaches(&runtime.node.netns, "10.244.1.2");
    runtime.succeeds("check", &pod, &nothing);
    runtime.succeeds("del", &pod, &nothing);
    runtime.node.assert_empty();
}
