//! Pods are replaced one after the other, and the daemon by the next one, and nobody is refused
//! in either family.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, connect, require_root};
use serde_json::{Value, json};

use crate::dual::{self, FLAGS};
use crate::load::{Load, pause_until};
use crate::node::{Daemon, Node};

/// As pods of the node's own are asked, and what somebody outside asks for.
const WITHIN: [&str; 4] = [
    "10.96.0.1:80",
    "10.96.0.2:80",
    "[fd00:96::1]:80",
    "[fd00:96::2]:80",
];
const FROM_OUTSIDE: [&str; 4] = [
    "192.0.2.1:30080",
    "192.0.2.1:30081",
    "[fd00:192::1]:30080",
    "[fd00:192::1]:30081",
];
/// One for each policy.
const SERVICES_OF: [&str; 2] = ["cluster", "local"];

/// Policies inside and outside, which both are to be kept by the pods of this node.
fn service(name: &str, ips: [&str; 2], node_port: u16, policy: &str) -> Value {
    let mut service = dual::service(name, ips);
    let spec = &mut service["spec"];
    spec["type"] = json!("NodePort");
    spec["externalTrafficPolicy"] = json!(policy);
    spec["internalTrafficPolicy"] = json!(policy);
    spec["ports"][0]["nodePort"] = json!(node_port);
    service
}

/// The pod that stays, one that is ready, and one that has been told to go.
fn slices(service: &str, ready: &[u8], leaving: &[u8]) -> [Value; 2] {
    dual::slices(service, |pods| {
        let endpoint = |pod: &u8, ready: bool| {
            let conditions = json!({ "ready": ready, "serving": true, "terminating": !ready });
            let address = format!("{pods}{pod}");
            json!({ "addresses": [address], "conditions": conditions, "nodeName": "a" })
        };
        let ready = ready.iter().map(|pod| endpoint(pod, true));
        let leaving = leaving.iter().map(|pod| endpoint(pod, false));
        ready.chain(leaving).collect()
    })
}

/// Where a pod listens.
fn addresses(pod: u8) -> [String; 2] {
    [
        format!("10.244.0.{pod}:8080"),
        format!("[fd00:244::{pod}]:8080"),
    ]
}

/// A node that somebody outside reaches, with a Service for each policy.
struct Rig {
    /// Of the pod that stays; before the namespaces, so that they end first.
    _stays: [Server; 2],
    api: FakeApi,
    outside: Netns,
    node: Node,
    flavour: &'static str,
}

impl Rig {
    fn new(flavour: &'static str) -> Self {
        let (node, outside) = (dual::node(flavour), Netns::new("outside"));
        let ends = ("192.0.2.1/24", "192.0.2.2/24");
        connect(&node.netns, "uplink", ends.0, &outside, "far0", ends.1);
        node.netns.ip("addr add fd00:192::1/64 dev uplink nodad");
        outside.ip("addr add fd00:192::2/64 dev far0 nodad");
        let api = dual::api(&node);
        let ips = [["10.96.0.1", "fd00:96::1"], ["10.96.0.2", "fd00:96::2"]];
        api.apply(SERVICES, service("cluster", ips[0], 30080, "Cluster"));
        api.apply(SERVICES, service("local", ips[1], 30081, "Local"));
        let rig = Self {
            _stays: serve(&node, 5),
            api,
            outside,
            node,
            flavour,
        };
        rig.tell(&[5], &[]);
        rig
    }

    fn tell(&self, ready: &[u8], leaving: &[u8]) {
        for service in SERVICES_OF {
            for slice in slices(service, ready, leaving) {
                self.api.apply(SLICES, slice);
            }
        }
    }

    /// Once it has programmed everything.
    fn start(&self, flags: &[&str]) -> Daemon {
        // What an earlier one has said is not its word.
        std::fs::remove_file(self.node.path("log")).ok();
        let daemon = self.node.start_with("iptables", &[&FLAGS, flags].concat());
        daemon.wait_said(&["Programmed all Services"]);
        daemon
    }

    /// On the node itself, and outside.
    fn load(&self) -> [Load; 2] {
        [
            Load::start(&self.node.netns, &WITHIN),
            Load::start(&self.outside, &FROM_OUTSIDE),
        ]
    }

    /// How many rules lead to a pod, in each family.
    fn leading_to(&self, pod: u8) -> [usize; 2] {
        let rules = dual::rules(&self.node, self.flavour);
        addresses(pod).map(|address| {
            let part = format!("--to-destination {address}");
            rules.iter().filter(|rule| rule.contains(&part)).count()
        })
    }
}

fn serve(node: &Node, pod: u8) -> [Server; 2] {
    if pod > 5 {
        node.netns.ip(&format!("addr add 10.244.0.{pod}/32 dev lo"));
        node.netns
            .ip(&format!("addr add fd00:244::{pod}/128 dev lo nodad"));
    }
    let name = format!("pod{pod}");
    addresses(pod).map(|address| node.netns.serve(Protocol::Tcp, &address, &name))
}

/// Ends; nobody must have failed.
#[track_caller]
fn end(loads: [Load; 2], flavour: &str) {
    let answered = loads.map(Load::end);
    assert!(answered.iter().all(|n| *n > 50), "{flavour}: {answered:?}");
}

fn roll(flavour: &'static str) {
    let rig = Rig::new(flavour);
    let daemon = rig.start(&[]);
    let loads = rig.load();
    let mut old: Option<(u8, [Server; 2])> = None;
    for pod in 6..10 {
        let new = serve(&rig.node, pod);
        match &old {
            None => rig.tell(&[5, pod], &[]),
            Some((leaving, _)) => rig.tell(&[5, pod], &[*leaving]),
        }
        daemon.wait("the new pod", || {
            let led = rig.leading_to(pod);
            led.iter().all(|rules| *rules >= SERVICES_OF.len())
        });
        if let Some((gone, servers)) = old.replace((pod, new)) {
            daemon.wait("no way to the old pod", || rig.leading_to(gone) == [0, 0]);
            // Whoever is on the way still arrives.
            pause_until(Instant::now() + Duration::from_secs(2));
            rig.tell(&[5, pod], &[]);
            drop(servers);
        }
    }
    drop(daemon);
    end(loads, flavour);
}

#[test]
fn case_254_a_rolling_update_refuses_nobody_under_both_policies() {
    if require_root() {
        ["nft", "legacy"].into_iter().for_each(roll);
    }
}

/// Told to stop, killed, and then replaced by one whose every chain is another: the mark of
/// what is masqueraded is a choice that all rules show. What happens meanwhile is made up for.
fn replace_the_daemon(flavour: &'static str) {
    let rig = Rig::new(flavour);
    let mut daemon = Some(rig.start(&[]));
    let loads = rig.load();
    let (same, other_mark): (&[&str], &[&str]) = (&[], &["--iptables-masquerade-bit", "5"]);
    let mut pods = vec![5];
    let mut servers = Vec::new();
    for (pod, signal, flags) in [
        (6, Signal::SIGTERM, same),
        (7, Signal::SIGKILL, same),
        (8, Signal::SIGTERM, other_mark),
    ] {
        daemon.take().unwrap().end(signal);
        servers.push(serve(&rig.node, pod));
        pods.push(pod);
        rig.tell(&pods, &[]);
        let next = rig.start(flags);
        let led = rig.leading_to(pod);
        assert!(led.iter().all(|rules| *rules > 0), "{led:?}");
        for load in &loads {
            let before = load.answered();
            next.wait("traffic", || load.answered() > before + 50);
            assert!(load.failures().is_empty(), "{:#?}", load.failures());
        }
        daemon = Some(next);
    }
    let rules = dual::rules(&rig.node, flavour).concat();
    assert!(
        rules.contains("0x20/0x20") && !rules.contains("0x4000"),
        "{rules}"
    );
    end(loads, flavour);
}

#[test]
fn no_connection_notices_that_the_daemon_is_replaced() {
    if require_root() {
        ["nft", "legacy"].into_iter().for_each(replace_the_daemon);
    }
}
