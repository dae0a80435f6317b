//! Two nodes with a wire between them, and a pod on each.
//!
//! ```text
//!  pod 10.244.1.2 ─ node a 172.30.0.11 ─── 172.30.0.12 node b ─ pod 10.244.2.2
//! ```

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use seaway_netlink::netns::in_namespace;
use seaway_testbed::fake_api::{FakeApi, NODES};
use seaway_testbed::{Join, PrivateMounts, connect, wait_until};
use serde_json::json;

use crate::plugin;
use crate::site::Site;

/// Who leads packets from node to node, and how.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'a> {
    /// A route by hand, and nothing else.
    Bare,
    /// A route by hand, and the masquerade that a cluster's node cannot do without.
    Route,
    /// A VXLAN device and masquerade by hand.
    Vxlan,
    /// `seaway-proxy`, told by these flags.
    Proxy(&'a Path, &'a [&'a str]),
}

/// The two nodes; what runs on them ends with this.
pub(super) struct Nodes {
    pub(super) sites: [Site; 2],
    /// Of the pods.
    pub(super) addresses: [String; 2],
    /// With the mounts that they live in.
    daemons: Vec<(Child, PrivateMounts)>,
}

const API: &str = "127.0.0.1:8001";
const NAMES: [&str; 2] = ["a", "b"];

fn node_ip(place: usize) -> String {
    format!("172.30.0.{}", 11 + place)
}

fn pod_cidr(place: usize) -> String {
    format!("10.244.{}.0/24", 1 + place)
}

impl Nodes {
    pub(super) fn new(way: Way<'_>) -> Result<Self> {
        let sites = [Site::new(1)?, Site::new(1)?];
        let end = |place| format!("{}/24", node_ip(place));
        let [a, b] = [&sites[0].node, &sites[1].node];
        connect(a, "eth0", &end(0), b, "eth0", &end(1));
        // The same for all: who fits more into a packet is not the question.
        let mtu = 1450;
        let mut addresses = [String::new(), String::new()];
        for place in [0, 1] {
            let site = &sites[place];
            site.node.sysctl("ipv4/ip_forward", "1");
            let plugin = plugin::of_node(&pod_cidr(place), mtu, site.dir());
            let pods = site.attachments();
            addresses[place] = site.enter(|| plugin.add(&pods[0]))?;
        }
        let mut nodes = Self {
            sites,
            addresses,
            daemons: Vec::new(),
        };
        for place in [0, 1] {
            match way {
                Way::Bare => nodes.route(place),
                Way::Route => {
                    nodes.route(place);
                    nodes.masquerade(place);
                }
                Way::Vxlan => {
                    nodes.vxlan(place);
                    nodes.masquerade(place);
                }
                Way::Proxy(program, flags) => nodes.proxy(place, program, flags)?,
            }
        }
        nodes.await_path()?;
        Ok(nodes)
    }

    fn route(&self, place: usize) {
        let (cidr, via) = (pod_cidr(1 - place), node_ip(1 - place));
        self.sites[place]
            .node
            .ip(&format!("route add {cidr} via {via}"));
    }

    fn masquerade(&self, place: usize) {
        let rules = "add table ip hand; \
            add chain ip hand out { type nat hook postrouting priority srcnat; }; \
            add rule ip hand out ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade";
        self.sites[place].node.must_run(&["nft", rules]);
    }

    /// As flannel and others do it: no learning, everything permanent.
    fn vxlan(&self, place: usize) {
        let (node, other) = (&self.sites[place].node, 1 - place);
        let (local, remote) = (node_ip(place), node_ip(other));
        let (mac, gateway) = (
            |n| format!("02:00:00:00:00:0{n}"),
            format!("10.244.{}.0", 1 + other),
        );
        for command in [
            format!("link add vx type vxlan id 42 dstport 8472 local {local} dev eth0 nolearning"),
            format!("link set vx address {} mtu 1450 up", mac(place)),
            format!("addr add 10.244.{}.0/32 dev vx", 1 + place),
            format!("route add {} via {gateway} dev vx onlink", pod_cidr(other)),
            format!(
                "neigh add {gateway} lladdr {} dev vx nud permanent",
                mac(other)
            ),
        ] {
            node.ip(&command);
        }
        let entry = [
            "bridge",
            "fdb",
            "add",
            &mac(other),
            "dev",
            "vx",
            "dst",
            &remote,
            "self",
            "permanent",
        ];
        node.must_run(&entry);
    }

    fn proxy(&mut self, place: usize, program: &Path, flags: &[&str]) -> Result<()> {
        let site = &self.sites[place];
        let listen = || TcpListener::bind(API);
        let api = FakeApi::serve(in_namespace(site.node.fd().as_fd(), listen)??, None);
        (0..NAMES.len()).for_each(|place| api.apply(NODES, object(place)));
        let path = |name: &str| -> PathBuf { site.dir().join(name) };
        let kubeconfig = json!({
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{API}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        std::fs::write(path("kubeconfig"), kubeconfig.to_string()).context("write a kubeconfig")?;
        let mounts = PrivateMounts::new();
        let log = File::create(path("log")).context("create a log")?;
        let mut command = Join::new()
            .netns(&site.node)
            .mounts(&mounts)
            .command(program);
        command.args(["run", "--service-proxy", "off", "--pod-network", "on"]);
        command.args([
            "--node-name",
            NAMES[place],
            "--cluster-cidr",
            "10.244.0.0/16",
        ]);
        command.args(flags);
        for (flag, name) in [
            ("--kubeconfig", "kubeconfig"),
            ("--run-dir", "run"),
            ("--cni-conf-dir", "net.d"),
            ("--bpffs-dir", "bpf"),
        ] {
            command.arg(flag).arg(path(name));
        }
        // A plain HTTP server is reached without a single CA certificate.
        command.env("SSL_CERT_FILE", "/dev/null");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.daemons
            .push((child.context("start seaway-proxy")?, mounts));
        Ok(())
    }

    fn await_path(&self) -> Result<()> {
        let (pod, nobody) = (&self.sites[0].pods[0], format!("{}:9", self.addresses[1]));
        let outcome = wait_until(Duration::from_secs(20), "a pod to reach the other", || {
            // Who refuses has been reached.
            Ok(match pod.ask_tcp(&nobody) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
                other => Err(format!("{other:?}")),
            })
        });
        outcome.with_context(|| {
            let log = |site: &Site| std::fs::read_to_string(site.dir().join("log"));
            let logs: Vec<String> = self.sites.iter().flat_map(log).collect();
            logs.join("\n")
        })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (daemon, _) in &mut self.daemons {
            // One that has ended by itself cannot be killed.
            daemon.kill().ok();
            daemon.wait().ok();
        }
    }
}

fn object(place: usize) -> serde_json::Value {
    json!({
        "metadata": {"name": NAMES[place]},
        "spec": {"podCIDR": pod_cidr(place), "podCIDRs": [pod_cidr(place)]},
        "status": {"addresses": [{"type": "InternalIP", "address": node_ip(place)}]},
    })
}
