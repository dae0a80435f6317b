//! A start on what another version of Seaway has left: other chains, other sets, other pins.
//! The oracles are connections, `iptables-save`, `ip6tables-save`, `ipset` and the BPF file
//! system.

use std::fs;

use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, XTABLES_WAIT, require_root};

use crate::fill;
use crate::load::Load;
use crate::node::{Daemon, Node};
use crate::wide::Wide;

#[path = "takeover/pins.rs"]
mod pins;

const FLAVOURS: [&str; 2] = ["nft", "legacy"];
const WEB: &str = "10.96.0.1:80";
/// Who answers before and after the API has changed.
const PODS: [(&str, &str); 2] = [("10.244.0.6:8080", "old"), ("10.244.0.5:8080", "new")];

/// Somebody else's, some of it with names and words that only resemble ours.
const FOREIGN: &str = r#"*nat
:DOCKER - [0:0]
:SEAWAYS - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -p tcp -m tcp --dport 8081 -j DNAT --to-destination 172.17.0.2:80
-A SEAWAYS -m set --match-set somebodys src -j RETURN
-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE
COMMIT
*filter
-A INPUT -s 192.0.2.99/32 -m comment --comment "not ours: -j SEAWAY-ACCEPT" -j DROP
COMMIT
"#;

/// Other names, other ways, rules that today's version has no words for, an entry chain with
/// today's name and another jump, and an endpoint that is none any more.
const OLDER: &str = r#"*nat
:SEAWAY-SERVICES - [0:0]
:SEAWAY-CLUSTER-IPS - [0:0]
:SEAWAY-END-0123456789abcdef - [0:0]
:SEAWAY-SNAT - [0:0]
-A PREROUTING -j SEAWAY-SERVICES
-A PREROUTING -m length --length 20:65535 -m comment --comment "seaway, second way" -j SEAWAY-CLUSTER-IPS
-A OUTPUT -j SEAWAY-SERVICES
-A POSTROUTING -m comment --comment "seaway" -j SEAWAY-SNAT
-A SEAWAY-SERVICES -m set --match-set SEAWAY-CLIENTS-01234567 dst -j RETURN
-A SEAWAY-SERVICES -d 10.96.0.0/16 -j SEAWAY-CLUSTER-IPS
-A SEAWAY-CLUSTER-IPS -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -g SEAWAY-END-0123456789abcdef
-A SEAWAY-END-0123456789abcdef -j SET --add-set SEAWAY-CLIENTS-01234567 src --exist
-A SEAWAY-END-0123456789abcdef -p tcp -j DNAT --to-destination 10.244.0.6:8080
-A SEAWAY-SNAT -m mark --mark 0x4000/0x4000 -j MASQUERADE
COMMIT
*filter
:SEAWAY-ACCEPT - [0:0]
-A FORWARD -m comment --comment "seaway" -j SEAWAY-ACCEPT
-A SEAWAY-ACCEPT -m conntrack --ctstate DNAT -j ACCEPT
COMMIT
"#;

const OLDER_V6: &str = "*nat
:SEAWAY-CLUSTER-IPS - [0:0]
-A PREROUTING -j SEAWAY-CLUSTER-IPS
-A OUTPUT -j SEAWAY-CLUSTER-IPS
-A SEAWAY-CLUSTER-IPS -d fd00:96::1/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00:244::6]:8080
COMMIT
";

/// What only the older layout has: parts of names, and a whole rule.
const OF_THE_OLDER: [&str; 7] = [
    "SEAWAY-CLUSTER-IPS",
    "SEAWAY-END-",
    "SEAWAY-SNAT",
    "SEAWAY-ACCEPT",
    "SEAWAY-CLIENTS-",
    "SEAWAY-4-0123",
    "-A PREROUTING -j SEAWAY-SERVICES",
];

/// Rules and chains that somebody has made, by flavour, and the names of sets.
type Kernel = [Vec<String>; 3];

fn kernel(netns: &Netns) -> Kernel {
    let [nft, legacy] = FLAVOURS.map(|flavour| {
        let dump = ["iptables", "ip6tables"]
            .map(|program| netns.must_run(&[format!("{program}-{flavour}-save")]));
        let dump = dump.concat();
        let made = |line: &&str| line.starts_with("-A") || line.ends_with("- [0:0]");
        dump.lines().filter(made).map(str::to_owned).collect()
    });
    let sets = netns.must_run(&["ipset", "list", "-name"]);
    [nft, legacy, sets.lines().map(str::to_owned).collect()]
}

fn restore(node: &Node, program: &str, rules: &str) {
    let file = node.path("rules");
    fs::write(&file, rules).unwrap();
    let program = format!("{program}-restore");
    let file = file.to_str().unwrap();
    let words = [program.as_str(), "--noflush", XTABLES_WAIT, file];
    node.netns.must_run(&words);
}

/// By this chain a kubelet tells which flavour it uses.
fn hint(node: &Node, flavour: &str) {
    let rules = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
    restore(node, &format!("iptables-{flavour}"), rules);
}

/// Puts somebody else's rules into both flavours and the older layout into some. Returns what
/// there was without the latter.
fn seed(node: &Node, left_in: &[&str]) -> Kernel {
    let host = &node.netns;
    let set = |name: &str, kind: &str| {
        let words = format!("ipset create {name} hash:ip {kind}");
        host.must_run(&words.split_whitespace().collect::<Vec<_>>());
    };
    set("somebodys", "");
    for flavour in FLAVOURS {
        restore(node, &format!("iptables-{flavour}"), FOREIGN);
    }
    let before = kernel(host);
    set("SEAWAY-CLIENTS-01234567", "timeout 3600");
    set("SEAWAY-4-0123", "timeout 60");
    for flavour in left_in {
        restore(node, &format!("iptables-{flavour}"), OLDER);
        restore(node, &format!("ip6tables-{flavour}"), OLDER_V6);
    }
    assert_ne!(kernel(host), before);
    before
}

/// What was there is there, and nothing that only the older layout has.
#[track_caller]
fn assert_is_gone(now: &Kernel, before: &Kernel) {
    for (now, before) in now.iter().zip(before) {
        for line in before {
            assert!(now.contains(line), "{line} is not in {now:#?}");
        }
        let others = now.iter().filter(|line| !before.contains(line));
        let older = |line: &&String| OF_THE_OLDER.iter().any(|part| line.contains(part));
        let left: Vec<_> = others.filter(older).collect();
        assert!(left.is_empty(), "{left:#?}");
    }
}

/// Waits until all of them have been answered some more.
#[track_caller]
pub(crate) fn go_on(daemon: &Daemon, loads: &[Load]) {
    let before: Vec<u64> = loads.iter().map(Load::answered).collect();
    daemon.wait("more answers", || {
        for load in loads {
            let failures = load.failures();
            assert!(failures.is_empty(), "{failures:#?}");
        }
        let mut pairs = loads.iter().zip(&before);
        pairs.all(|(load, before)| load.answered() > before + 50)
    });
}

fn start_on_an_older_layout(left_in: &str, serves_in: &str) {
    eprintln!("left in {left_in}, served in {serves_in}");
    let w = Wide::new();
    fill(&w.api);
    let host = &w.node.netns;
    let _servers = PODS.map(|(at, name)| host.serve(Protocol::Tcp, at, name));
    hint(&w.node, serves_in);
    let before = seed(&w.node, &[left_in]);
    assert_eq!(w.ask(Protocol::Tcp, WEB), "old");
    let loads = [&w.client, host].map(|netns| Load::start(netns, &[WEB]));
    let daemon = w.start(&[]);
    assert_eq!(daemon.said(&["Using iptables", serves_in]), 1);
    assert_is_gone(&kernel(host), &before);
    assert_eq!(w.ask(Protocol::Tcp, WEB), "new");
    go_on(&daemon, &loads);
    // Nor is what is there taken for somebody else's change.
    let (_, metrics) = w.node.get_from("127.0.0.1:10249", "/metrics").unwrap();
    let repaired = "seaway_service_proxy_drift_repaired_total 0";
    assert!(metrics.lines().any(|line| line == repaired), "{metrics}");
    assert_eq!(daemon.terminate().code(), Some(0));
    // Whom the older rules have led to the older pod, that one still serves.
    for load in loads {
        assert!(load.end() > 50);
    }
    w.node.cleanup();
    assert_eq!(kernel(host), before);
}

#[test]
fn a_start_on_an_older_layout_refuses_nobody_and_leaves_nothing_of_it() {
    if require_root() {
        for flavour in FLAVOURS {
            start_on_an_older_layout(flavour, flavour);
        }
    }
}

#[test]
fn an_older_layout_in_the_other_flavour_goes_as_well() {
    if require_root() {
        start_on_an_older_layout("legacy", "nft");
        start_on_an_older_layout("nft", "legacy");
    }
}

/// As when a run ended between its last rule and the other flavour's removal.
#[test]
fn leftovers_of_the_other_flavour_go_though_there_is_nothing_to_write() {
    if !require_root() {
        return;
    }
    for (serves_in, left_in) in [("nft", "legacy"), ("legacy", "nft")] {
        let w = Wide::new();
        fill(&w.api);
        hint(&w.node, serves_in);
        assert_eq!(w.start(&[]).terminate().code(), Some(0));
        let before = kernel(&w.node.netns);
        restore(&w.node, &format!("ip6tables-{left_in}"), OLDER_V6);
        assert_ne!(kernel(&w.node.netns), before);
        let _daemon = w.start(&[]);
        assert_eq!(kernel(&w.node.netns), before);
    }
}

#[test]
fn cleanup_takes_an_older_layout_off_both_flavours() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let before = seed(&node, &FLAVOURS);
    let said = node.cleanup();
    assert!(
        said.contains("Removed part=\"the iptables rules\""),
        "{said}"
    );
    assert_eq!(kernel(&node.netns), before);
}
