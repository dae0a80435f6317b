//! `explain` names what is altered by hand wherever it is: in rules of both families and both
//! flavours of iptables, and in a map.

use std::net::Ipv4Addr;

use aya::maps::{HashMap, Map, MapData};
use nix::sys::signal::Signal;
use seaway_ebpf_abi::{Be32, SLOTS as SLOTS_MAP, Slot, SlotKey};
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{XTABLES_WAIT, require_root};
use serde_json::{Value, json};

use crate::dual::{self, FLAGS};
use crate::explain::{check, explain, explain_beside, status};
use crate::node::{API, Node};

/// Addresses of one family, and who answers there.
struct Side {
    program: &'static str,
    vip: &'static str,
    node_port: &'static str,
    outsider: &'static str,
    endpoint: &'static str,
    /// An endpoint of nobody's.
    other: &'static str,
    facts: [&'static str; 4],
}

const SIDES: [Side; 2] = [
    Side {
        program: "iptables",
        vip: "10.96.0.1:80",
        node_port: "172.30.0.11:30080",
        outsider: "198.51.100.7",
        endpoint: "10.244.0.5:8080",
        other: "10.244.0.9:8080",
        facts: [
            "10.96.0.1:80/TCP: clusterIP of Service default/web",
            "all addresses of this port: NodePort 30080/TCP, 10.96.0.1:80/TCP",
            "10.244.0.7:8080 on node b, left out under policy Cluster: not ready",
            "fd00:244::5 on node a (this one), left out: IPv6, this address is IPv4",
        ],
    },
    Side {
        program: "ip6tables",
        vip: "[fd00:96::1]:80",
        node_port: "[fd00:30::11]:30080",
        outsider: "2001:db8::7",
        endpoint: "[fd00:244::5]:8080",
        other: "[fd00:244::9]:8080",
        facts: [
            "[fd00:96::1]:80/TCP: clusterIP of Service default/web",
            "all addresses of this port: NodePort 30080/TCP, [fd00:96::1]:80/TCP",
            "[fd00:244::7]:8080 on node b, left out under policy Cluster: not ready",
            "10.244.0.5 on node a (this one), left out: IPv4, this address is IPv6",
        ],
    },
];

/// A NodePort in both families; one endpoint is ready, and one on another node is not.
fn fill(api: &FakeApi) {
    let mut web = dual::service("web", ["10.96.0.1", "fd00:96::1"]);
    web["spec"]["type"] = json!("NodePort");
    web["spec"]["ports"][0]["nodePort"] = json!(30080);
    api.apply(SERVICES, web);
    let endpoint = |pods: &str, pod: u8, node: &str, ready: bool| {
        let conditions = json!({ "ready": ready });
        json!({ "addresses": [format!("{pods}{pod}")], "conditions": conditions, "nodeName": node })
    };
    let endpoints =
        |pods: &str| json!([endpoint(pods, 5, "a", true), endpoint(pods, 7, "b", false)]);
    for slice in dual::slices("web", endpoints) {
        api.apply(SLICES, slice);
    }
}

fn ask(node: &Node, words: &[&str]) -> (i32, String) {
    let (code, text, said) = explain_beside(node, "iptables", &FLAGS, words);
    (code, format!("{text}{said}"))
}

#[track_caller]
fn agrees(node: &Node, words: &[&str], parts: &[&str]) {
    let (code, text) = ask(node, words);
    assert_eq!(code, 0, "{text}");
    check(&text, parts);
    check(&text, &["the kernel is as it should be"]);
}

#[track_caller]
fn differs(node: &Node, words: &[&str], parts: &[&str]) {
    let (code, text) = ask(node, words);
    assert_eq!(code, 1, "{text}");
    check(&text, parts);
    check(&text, &["the kernel is not as it should be"]);
}

impl Side {
    /// What a person reads while all is well.
    fn is_served(&self, node: &Node) {
        agrees(node, &[self.vip], &self.facts);
        let answers = format!(
            "{} on node a (this one), answers under policy",
            self.endpoint
        );
        let translates = format!("-j DNAT --to-destination {}", self.endpoint);
        agrees(node, &[self.vip], &[&answers, &translates]);
        let met = format!(
            "{}, a client from outside: answered by {}, masqueraded",
            self.outsider, self.endpoint
        );
        let words = [self.node_port, "--from", self.outsider];
        agrees(node, &words, &["NodePort of Service default/web", &met]);
    }

    fn run(&self, node: &Node, flavour: &str, rule: &str) {
        let command = format!("{}-{flavour} {XTABLES_WAIT} -t nat {rule}", self.program);
        node.netns.must_run(&["sh", "-c", &command]);
    }

    /// The rule that translates, as `iptables-save` has it.
    fn rule(&self, node: &Node, flavour: &str) -> String {
        let save = format!("{}-{flavour}-save", self.program);
        let dump = node.netns.must_run(&[&save, "-t", "nat"]);
        let part = format!("--to-destination {}", self.endpoint);
        let mut rules = dump.lines().filter(|line| line.contains(&part));
        let rule = rules.next();
        rule.unwrap_or_else(|| panic!("{part} is not in {dump}"))
            .to_owned()
    }

    /// Missing, then another one, then itself again.
    fn is_named_when_altered(&self, node: &Node, flavour: &str) {
        let rule = self.rule(node, flavour);
        let delete = |rule: &str| self.run(node, flavour, &rule.replacen("-A ", "-D ", 1));
        delete(&rule);
        differs(
            node,
            &[self.vip],
            &["missing in nat, chain SEAWAY-SVC-", &rule],
        );
        let words = [self.vip, "--output", "json"];
        let (_, text, said) = explain_beside(node, "iptables", &FLAGS, &words);
        let value: Result<Value, _> = serde_json::from_str(&text);
        let value = value.unwrap_or_else(|error| panic!("{error}: {text} {said}"));
        assert_eq!(value["kernel"]["variant"], flavour, "{value}");
        let differences = value["kernel"]["differences"].as_array().unwrap();
        assert_eq!(differences.len(), 1, "{value}");
        assert_eq!(differences[0]["want"], json!(rule), "{value}");
        // Its other address leads there as well.
        differs(node, &[self.node_port], &["missing in nat, chain ", &rule]);

        let other = rule.replace(self.endpoint, self.other);
        self.run(node, flavour, &other);
        let parts = [
            "different in nat, chain ",
            "wanted ",
            &rule,
            "found ",
            &other,
        ];
        differs(node, &[self.vip], &parts);
        delete(&other);
        self.run(node, flavour, &rule);
        agrees(node, &[self.vip], &[&rule]);
    }
}

fn altered_rules_are_named(flavour: &str) {
    let node = dual::node(flavour);
    let api = dual::api(&node);
    fill(&api);
    let daemon = node.start_with("iptables", &FLAGS);
    daemon.wait("the first sync", || status(&node).0 == 0);
    for side in SIDES {
        side.is_served(&node);
    }
    // Nobody repairs any more.
    daemon.end(Signal::SIGKILL);
    let [v4, v6] = SIDES;
    for (side, whole) in [(&v4, &v6), (&v6, &v4)] {
        let words = [side.vip];
        agrees(&node, &words, &["the daemon does not run", flavour]);
        side.is_named_when_altered(&node, flavour);
        // The other family's is another one.
        let rule = side.rule(&node, flavour);
        side.run(&node, flavour, &rule.replacen("-A ", "-D ", 1));
        agrees(&node, &[whole.vip], &whole.facts);
        side.run(&node, flavour, &rule);
    }
}

#[test]
fn a_rule_altered_by_hand_is_named_in_both_families_with_nft() {
    if require_root() {
        altered_rules_are_named("nft");
    }
}

#[test]
fn a_rule_altered_by_hand_is_named_in_both_families_with_legacy() {
    if require_root() {
        altered_rules_are_named("legacy");
    }
}

#[test]
fn an_entry_of_a_map_altered_by_hand_is_named_and_repaired_after_it() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _web = node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    crate::fill(&api);
    let daemon = node.start("ebpf");
    daemon.wait("the first sync", || status(&node).0 == 0);
    assert_eq!(explain(&node, "ebpf", &["10.96.0.1:80"]).0, 0);
    // As the daemon's mounts have it.
    let pin = format!(
        "/proc/{}/root/sys/fs/bpf/seaway/v1/maps/{SLOTS_MAP}",
        daemon.pid()
    );
    let pinned = Map::HashMap(MapData::from_pin(pin).unwrap());
    let mut slots: HashMap<MapData, SlotKey, Slot> = pinned.try_into().unwrap();
    let mut alter = || {
        for (key, mut slot) in slots.iter().map(Result::unwrap).collect::<Vec<_>>() {
            slot.addr = Be32::from_host(Ipv4Addr::new(10, 244, 0, 9).to_bits());
            slots.insert(key, slot, 0).unwrap();
        }
    };
    let wanted = "wanted slot 10.96.0.1:80/TCP 0 10.244.0.5:8080";
    let found = "found slot 10.96.0.1:80/TCP 0 10.244.0.9:8080";
    // The daemon reads the maps now and then, so a look may come too late.
    let named = (0..3).any(|_| {
        alter();
        let (code, text, _) = explain(&node, "ebpf", &["10.96.0.1:80"]);
        code == 1 && text.contains(&format!("different in the maps: {wanted}, {found}"))
    });
    assert!(named, "{}", daemon.log());
    daemon.wait("the repair", || {
        explain(&node, "ebpf", &["10.96.0.1:80"]).0 == 0
    });
    assert!(node.ask("10.96.0.1:80").contains("web"));
    assert!(daemon.said(&["Repaired what somebody else"]) >= 1);
    let missing = "missing in the kernel: slot 10.96.0.1:80/TCP 0 10.244.0.5:8080";
    let named = (0..3).any(|_| {
        alter();
        let (code, text, _) = status(&node);
        code == 1 && text.contains(missing)
    });
    assert!(named, "{}", daemon.log());
    daemon.wait("the repair after a status", || status(&node).0 == 0);
    assert!(node.ask("10.96.0.1:80").contains("web"));
}
