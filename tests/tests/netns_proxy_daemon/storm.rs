//! A storm of changes, with lists begun anew, broken connections and deaths amid it: what the
//! kernel holds afterwards is what a start from nothing comes to. The oracles are
//! `iptables-save`, `ip6tables-save` and `ipset`.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, Gone, SERVICES, SLICES};
use seaway_testbed::{require_root, short_or_long};
use serde_json::{Value, json};

use crate::dual::{self, FLAGS};
use crate::explain::status;
use crate::load::pause_until;
use crate::node::{Daemon, Node};
use crate::ours;

/// So many changes come in one go,
const BURST: u32 = 8;
/// and so often, before something else happens.
const BURSTS: u32 = 6;
/// The longest pause between two bursts, in milliseconds: several fall into one round, and now
/// and then a round falls into one.
const PAUSE: u32 = 60;
const NAMES: u32 = 12;

/// Numbers that look random, and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        // A linear congruence, of whose numbers the high bits are the better ones.
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// There are fewer addresses and NodePorts than Services, so that some are contested.
fn service(name: u32, dice: &mut Dice) -> Value {
    let ip = 1 + dice.roll(NAMES - 2);
    let ips = [format!("10.96.2.{ip}"), format!("fd00:96::2:{ip}")];
    let mut service = dual::service(&format!("s{name}"), [&ips[0], &ips[1]]);
    let spec = &mut service["spec"];
    spec["ports"][0]["protocol"] = json!(protocol(name));
    if dice.roll(3) == 0 {
        let timeout = 60 * (1 + dice.roll(2));
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": timeout } });
    }
    let (kind, policy) = match dice.roll(4) {
        0 => ("NodePort", "Cluster"),
        1 => ("LoadBalancer", "Local"),
        _ => return service,
    };
    spec["type"] = json!(kind);
    spec["externalTrafficPolicy"] = json!(policy);
    spec["ports"][0]["nodePort"] = json!(30100 + dice.roll(NAMES - 2));
    if kind == "LoadBalancer" {
        spec["healthCheckNodePort"] = json!(32100 + name);
        spec["loadBalancerSourceRanges"] = json!(["192.0.2.0/24", "fd00:192::/64"]);
        let ips = [format!("198.51.100.{ip}"), format!("fd00:198::{ip}")];
        let ingress = ips.map(|ip| json!({ "ip": ip }));
        service["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    }
    service
}

fn protocol(name: u32) -> &'static str {
    if name.is_multiple_of(4) { "UDP" } else { "TCP" }
}

/// Up to three pods, of which each may be there twice, unready, or on another node.
fn slices(name: u32, dice: &mut Dice) -> [Value; 2] {
    let pods = 0..dice.roll(4);
    let pods: Vec<_> = pods
        .map(|_| [9, 4, 3].map(|sides| dice.roll(sides)))
        .collect();
    let slices = dual::slices(&format!("s{name}"), |prefix| {
        let endpoint = |[pod, ready, here]: &[u32; 3]| {
            json!({
                "addresses": [format!("{prefix}{}", 1 + pod)],
                "conditions": { "ready": *ready > 0 },
                "nodeName": if *here > 0 { "a" } else { "b" },
            })
        };
        pods.iter().map(endpoint).collect()
    });
    slices.map(|mut slice| {
        slice["ports"][0]["protocol"] = json!(protocol(name));
        slice
    })
}

fn change(api: &FakeApi, dice: &mut Dice) {
    let name = dice.roll(NAMES);
    let (kind, objects) = match dice.roll(8) {
        0..4 => (SERVICES, vec![service(name, dice)]),
        _ => (SLICES, slices(name, dice).into()),
    };
    let deletes = dice.roll(4) == 0;
    for object in objects {
        if deletes {
            api.delete(kind, object);
        } else {
            api.apply(kind, object);
        }
    }
}

fn gust(api: &FakeApi, dice: &mut Dice) {
    for _ in 0..BURSTS {
        (0..BURST).for_each(|_| change(api, dice));
        let pause = Duration::from_millis(dice.roll(PAUSE).into());
        pause_until(Instant::now() + pause);
    }
}

fn start(node: &Node) -> Daemon {
    node.start_with("iptables", &FLAGS)
}

/// What may happen to a daemon, one after the other, with changes before, meanwhile and after.
fn storm(node: &Node, api: &FakeApi, dice: &mut Dice, mut daemon: Daemon) -> Daemon {
    for trouble in 0..4 {
        gust(api, dice);
        match trouble {
            // The watches end, and have to begin with a list.
            0 => api.forget(Gone::Event),
            // Perhaps amid a round, and changed while nobody looks.
            1 => {
                assert_eq!(daemon.end(Signal::SIGKILL).code(), None);
                gust(api, dice);
                daemon = start(node);
            }
            // The same, of which nobody is told but by a list.
            2 => {
                api.break_off();
                gust(api, dice);
                api.forget(Gone::Status);
            }
            _ => {
                let code = daemon.end(Signal::SIGTERM).code();
                // By the signal itself before it knows what to do about it.
                assert!(matches!(code, None | Some(0)), "{code:?}");
                daemon = start(node);
            }
        }
    }
    gust(api, dice);
    daemon
}

fn rules(node: &Node) -> Vec<String> {
    let programs = ["iptables-nft", "ip6tables-nft"];
    programs
        .map(|program| ours::rules(&node.netns, program))
        .concat()
}

/// What comes last in either watch: who has it in the kernel has all that came before. Before
/// it, one that is refused.
fn mark(api: &FakeApi) {
    let nobody = dual::service("nobody", ["10.96.3.98", "fd00:96::3:98"]);
    api.apply(SERVICES, nobody);
    let mut mark = dual::service("mark", ["10.96.3.99", "fd00:96::3:99"]);
    mark["spec"]["sessionAffinity"] = json!("ClientIP");
    api.apply(SERVICES, mark);
    let ready = |pods: &str| json!([{ "addresses": [format!("{pods}99")], "nodeName": "a" }]);
    for slice in dual::slices("mark", ready) {
        api.apply(SLICES, slice);
    }
}

fn has_mark(node: &Node) -> bool {
    let rules = rules(node).concat();
    let parts = ["10.96.3.99/32", "10.244.0.99:8080", "fd00:96::3:99/128"];
    parts.iter().all(|part| rules.contains(part)) && rules.contains("[fd00:244::99]:8080")
}

/// Whether there is no set that no rule looks into.
fn every_set_is_used(node: &Node) -> bool {
    let rules = rules(node).concat();
    let sets = ours::sets(&node.netns);
    let mut names = sets.iter().filter_map(|set| set.split(' ').nth(1));
    names.all(|name| rules.contains(name))
}

/// Some seconds; with `SEAWAY_LONG` ten minutes.
#[test]
fn c11_after_a_storm_with_deaths_the_rules_are_those_of_a_start_from_nothing() {
    if !require_root() {
        return;
    }
    let node = dual::node("nft");
    let api = dual::api(&node);
    let mut dice = Dice(11);
    let mut daemon = start(&node);
    let until = Instant::now() + short_or_long(Duration::ZERO, Duration::from_mins(10));
    loop {
        daemon = storm(&node, &api, &mut dice, daemon);
        if Instant::now() >= until {
            break;
        }
    }
    mark(&api);
    daemon.wait("the last change", || {
        has_mark(&node) && status(&node).0 == 0
    });
    // The kernel lets go of a set some time after the rules that looked into it.
    let stuck = ["Cannot destroy sets of clients"];
    daemon.wait("no set too many", || {
        every_set_is_used(&node) || daemon.said(&stuck) > 0
    });
    let stormed = rules(&node);
    let left = stormed.iter().filter(|rule| rule.contains("10.96.2."));
    assert!(left.count() > 1, "{stormed:#?}");
    assert_eq!(daemon.terminate().code(), Some(0));

    node.cleanup();
    assert_eq!(rules(&node), [""; 0]);
    fs::remove_file(node.path("log")).unwrap();
    let daemon = start(&node);
    daemon.wait_said(&["Programmed all Services"]);
    ours::assert_same(&stormed, &rules(&node), "after the storm");
    assert_eq!(daemon.terminate().code(), Some(0));
}
