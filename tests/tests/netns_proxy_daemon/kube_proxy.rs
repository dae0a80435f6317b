//! Taking over from kube-proxy in either mode, while it runs or after it has ended. Its rules
//! are its own, and stay until its own `--cleanup`. The oracles are connections,
//! `iptables-save` and `nft`.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use seaway_testbed::fake_api::{NODES, SERVICES, SLICES};
use seaway_testbed::peer::{self, Protocol};
use seaway_testbed::{Join, Netns, PrivateMounts, cache_dir, require_root, skip, wait_until};
use serde_json::json;

use crate::load::Load;
use crate::node::{Daemon, HEALTHZ};
use crate::takeover::go_on;
use crate::wide::Wide;
use crate::{node, service, slice};

const WEB: &str = "10.96.0.1:80";
/// Its endpoint is on another node.
const FAR: &str = "10.96.0.2:80";
/// At the node's first address, which is the only one in kube-proxy's nftables mode.
const NODE_PORT: &str = "172.30.0.11:30080";
const FLAGS: [&str; 2] = ["--cluster-cidr", "10.244.0.0/16"];
/// From its start until it serves; only what never comes takes as long.
const PATIENCE: Duration = Duration::from_mins(1);
/// Who is not served yet is not waited for.
const SOON: Duration = Duration::from_millis(300);

/// As `cargo xtask setup` builds it.
fn program() -> PathBuf {
    cache_dir().join("bin/kube-proxy")
}

/// One at work; killed with its guard.
struct KubeProxy<'a> {
    w: &'a Wide,
    mounts: PrivateMounts,
    child: Child,
}

fn command(w: &Wide, mounts: &PrivateMounts) -> Command {
    let place = Join::new().netns(&w.node.netns).mounts(mounts);
    let mut command = place.command(program());
    command.stdin(Stdio::null());
    command
}

impl<'a> KubeProxy<'a> {
    /// Returns when it serves.
    fn start(w: &'a Wide, mode: &str) -> Self {
        let kubeconfig = w.node.path("kubeconfig");
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": mode,
            // The stand-in speaks JSON only.
            "clientConnection": { "kubeconfig": kubeconfig, "contentType": "application/json" },
            "hostnameOverride": "a",
            "clusterCIDR": "10.244.0.0/16",
            // Ours has to do without it at first.
            "healthzBindAddress": HEALTHZ,
            // Read-only in a network namespace.
            "conntrack": { "maxPerCore": 0, "min": 0 },
        });
        let file = w.node.path("kube-proxy.yaml");
        fs::write(&file, config.to_string()).unwrap();
        let log = File::create(w.node.path("kube-proxy.log")).unwrap();
        let mounts = PrivateMounts::new();
        let mut command = command(w, &mounts);
        command.arg("--config").arg(file);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let started = Self { w, mounts, child };
        started.wait();
        started
    }

    fn wait(&self) {
        let address: SocketAddr = WEB.parse().unwrap();
        let look = || {
            let ask = || peer::ask(Protocol::Tcp, address, SOON);
            let asked = self.w.client.enter(ask);
            Ok(asked.map(|_answer| ()).map_err(|error| error.to_string()))
        };
        wait_until(PATIENCE, "kube-proxy", look).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.w.node.path("kube-proxy.log")).unwrap();
            panic!("{error}\n{log}")
        });
    }

    /// Ends it; what it has written stays.
    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What an operator does at the end. Tells what it said.
    fn clean_up(&self) -> String {
        let output = command(self.w, &self.mounts).arg("--cleanup").output();
        String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
    }
}

impl Drop for KubeProxy<'_> {
    fn drop(&mut self) {
        // It has ended already, or shall now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What of kube-proxy the kernel holds, but for the chain that it shares with kubelets, which
/// its clean-up leaves.
fn of_kube_proxy(netns: &Netns) -> Vec<String> {
    let dumps = ["iptables-nft-save", "ip6tables-nft-save"].map(|save| netns.must_run(&[save]));
    let dump = dumps.concat();
    let rules = dump
        .lines()
        .filter(|line| line.contains("KUBE-") && !line.contains("KUBE-FIREWALL"));
    let mut found: Vec<String> = rules.map(str::to_owned).collect();
    for family in ["ip", "ip6"] {
        // There is no such table in the other mode.
        let listed = netns.run(&["nft", "list", "table", family, "kube-proxy"]);
        let text = String::from_utf8_lossy(&listed.stdout);
        found.extend(text.lines().map(str::to_owned));
    }
    found.sort_unstable();
    found
}

fn ours(w: &Wide) -> Vec<String> {
    let mut rules = w.node.rules();
    rules.retain(|rule| rule.contains("SEAWAY-"));
    rules
}

fn fill(w: &Wide) {
    let mut web = service("web", "10.96.0.1");
    web["spec"]["type"] = json!("NodePort");
    web["spec"]["ports"][0]["nodePort"] = json!(30080);
    w.api.apply(SERVICES, web);
    w.api.apply(SLICES, slice("web", "10.244.0.5"));
    w.api.apply(SERVICES, service("far", "10.96.0.2"));
    w.api.apply(SLICES, slice("far", "10.244.1.7"));
    // The only one: kube-proxy takes whatever comes for its own.
    w.api
        .apply(NODES, node("a", "172.30.0.11", "10.244.0.0/24"));
}

fn take_over(mode: &str, ended_before: bool) {
    if !require_root() {
        return;
    }
    if !program().is_file() {
        skip("needs kube-proxy: run `cargo xtask setup`");
        return;
    }
    let w = Wide::new();
    fill(&w);
    let host = &w.node.netns;
    let pods = [
        (host, "10.244.0.5"),
        (host, "10.244.0.6"),
        (&w.other, "10.244.1.7"),
    ];
    let _servers = pods.map(|(at, ip)| at.serve(Protocol::Tcp, &format!("{ip}:8080"), ip));
    let kube_proxy = KubeProxy::start(&w, mode);
    let loads = [
        Load::start(&w.client, &[WEB, FAR, NODE_PORT]),
        Load::start(host, &[WEB, FAR]),
    ];
    let daemon = hand_over(kube_proxy, ended_before, &loads);
    daemon.wait("the address of health checks", || {
        w.node.get("/healthz").is_ok_and(|(code, _)| code == 200)
    });
    // What changes from now on counts, and nothing that kube-proxy knew.
    w.api.apply(SLICES, slice("web", "10.244.0.6"));
    daemon.wait("the next pod", || {
        let next = |address: &str| w.ask(Protocol::Tcp, address) == "10.244.0.6";
        next(WEB) && next(NODE_PORT)
    });
    for load in loads {
        load.end();
    }
}

/// From kube-proxy to our daemon, and all that was kube-proxy's is gone.
fn hand_over(mut kube_proxy: KubeProxy<'_>, ended_before: bool, loads: &[Load]) -> Daemon {
    let w = kube_proxy.w;
    let host = &w.node.netns;
    if ended_before {
        kube_proxy.end();
    }
    let before = of_kube_proxy(host);
    assert!(!before.is_empty());
    let daemon = w.start(&FLAGS);
    go_on(&daemon, loads);
    kube_proxy.end();
    // One that runs may write its own again.
    let stayed = of_kube_proxy(host);
    assert!(!ended_before || stayed == before, "{stayed:#?}");
    assert!(!stayed.is_empty());
    go_on(&daemon, loads);
    let served = ours(w);
    let said = kube_proxy.clean_up();
    let left = of_kube_proxy(host);
    assert!(left.is_empty(), "{left:#?}\n{said}");
    assert_eq!(ours(w), served);
    go_on(&daemon, loads);
    daemon
}

#[test]
fn kube_proxy_in_iptables_mode_is_taken_over_while_it_runs() {
    take_over("iptables", false);
}

#[test]
fn kube_proxy_in_iptables_mode_is_taken_over_after_its_end() {
    take_over("iptables", true);
}

#[test]
fn kube_proxy_in_nftables_mode_is_taken_over_while_it_runs() {
    take_over("nftables", false);
}

#[test]
fn kube_proxy_in_nftables_mode_is_taken_over_after_its_end() {
    take_over("nftables", true);
}
