//! seaway-firewall against a real kernel; the oracles are nft and packets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "netns_cni_firewall/crowd.rs"]
mod crowd;
#[path = "netns_cni_firewall/flows.rs"]
mod flows;
#[path = "netns_cni_firewall/forward.rs"]
mod forward;
#[path = "netns_cni_firewall/memory.rs"]
mod memory;

use std::os::fd::AsFd;

use seaway_firewall::{Change, Firewall, Masquerade};
use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, connect, require_root};
use serde_json::Value;

fn masquerade(pods: &[&str], spared: &[&str]) -> Masquerade {
    let parse = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
    Masquerade {
        pod_cidrs: parse(pods),
        non_masquerade_cidrs: parse(spared),
    }
}

fn firewall(netns: &Netns) -> Firewall {
    Firewall::open_in(netns.fd().as_fd()).unwrap()
}

/// nft's own reading of the table, one rule a line, without comments.
fn rules(netns: &Netns, table: &str) -> Vec<String> {
    let text = netns.must_run(&[
        "nft",
        "list",
        "table",
        table.split(' ').next().unwrap(),
        "seaway",
    ]);
    let lines = text
        .lines()
        .map(|line| line.split(" comment").next().unwrap().trim());
    lines
        .filter(|line| !line.is_empty() && *line != "}")
        .map(str::to_owned)
        .collect()
}

fn tables(netns: &Netns) -> Vec<Value> {
    let text = netns.must_run(&["nft", "-j", "list", "tables"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let all = all["nftables"].as_array().unwrap();
    all.iter()
        .filter_map(|entry| entry.get("table"))
        .cloned()
        .collect()
}

#[test]
fn nft_reads_what_was_meant() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    let wanted = masquerade(
        &["10.244.1.0/24", "fd00:1::/64"],
        &["10.244.0.0/16", "10.96.0.1/32"],
    );
    assert_eq!(
        firewall(&node).ensure_masquerade(&wanted).unwrap(),
        Change::Changed
    );
    let want = [
        "table ip seaway {",
        "chain egress-masquerade {",
        "ip daddr 10.96.0.1 return",
        "ip daddr 10.244.0.0/16 return",
        "ip daddr 10.244.1.0/24 return",
        "ip daddr 224.0.0.0/4 return",
        "masquerade fully-random",
        "chain egress {",
        "type nat hook postrouting priority srcnat; policy accept;",
        "ip saddr 10.244.1.0/24 jump egress-masquerade",
    ];
    assert_eq!(rules(&node, "ip"), want);
    let six = rules(&node, "ip6");
    assert!(
        six.contains(&"ip6 saddr fd00:1::/64 jump egress-masquerade".into()),
        "{six:?}"
    );
    let listed = node.must_run(&["nft", "-j", "list", "table", "ip", "seaway"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let entries = listed["nftables"].as_array().unwrap();
    assert_eq!(
        entries
            .iter()
            .filter(|entry| entry.get("rule").is_some())
            .count(),
        6
    );
}

#[test]
fn again_changes_nothing_and_another_wish_replaces_all() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    node.must_run(&[
        "nft",
        "add table ip other; add chain ip other c; add rule ip other c accept",
    ]);
    let foreign = node.must_run(&["nft", "list", "table", "ip", "other"]);
    let mut firewall = firewall(&node);
    let first = masquerade(&["10.244.1.0/24"], &["10.244.0.0/16"]);
    let second = masquerade(&["10.244.1.0/24"], &["10.0.0.0/8"]);
    assert!(!firewall.has_masquerade(&first).unwrap());
    assert_eq!(firewall.ensure_masquerade(&first).unwrap(), Change::Changed);
    let handles = node.must_run(&["nft", "-a", "list", "table", "ip", "seaway"]);
    assert_eq!(
        firewall.ensure_masquerade(&first).unwrap(),
        Change::Unchanged
    );
    assert_eq!(
        node.must_run(&["nft", "-a", "list", "table", "ip", "seaway"]),
        handles
    );
    assert!(firewall.has_masquerade(&first).unwrap() && !firewall.has_masquerade(&second).unwrap());
    assert_eq!(
        firewall.ensure_masquerade(&second).unwrap(),
        Change::Changed
    );
    assert!(rules(&node, "ip").contains(&"ip daddr 10.0.0.0/8 return".into()));
    assert!(!rules(&node, "ip").contains(&"ip daddr 10.244.0.0/16 return".into()));
    assert_eq!(
        node.must_run(&["nft", "list", "table", "ip", "other"]),
        foreign
    );
}

#[test]
fn damage_is_seen_and_mended() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    let mut firewall = firewall(&node);
    let wanted = masquerade(&["10.244.1.0/24"], &["10.244.0.0/16"]);
    firewall.ensure_masquerade(&wanted).unwrap();
    let whole = rules(&node, "ip");
    for damage in [
        "flush chain ip seaway egress",
        "add rule ip seaway egress-masquerade accept",
        "insert rule ip seaway egress ip saddr 10.0.0.1 return",
        "delete table ip seaway",
        "flush ruleset",
    ] {
        node.must_run(&["nft", damage]);
        assert!(!firewall.has_masquerade(&wanted).unwrap(), "{damage}");
        assert_eq!(
            firewall.ensure_masquerade(&wanted).unwrap(),
            Change::Changed,
            "{damage}"
        );
        assert_eq!(rules(&node, "ip"), whole, "{damage}");
    }
}

#[test]
fn removal_takes_our_tables_and_nothing_else() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    node.must_run(&["nft", "add table ip other; add table inet seaway"]);
    let before = tables(&node).len();
    let mut firewall = firewall(&node);
    assert_eq!(firewall.remove_all().unwrap(), Change::Unchanged);
    firewall
        .ensure_masquerade(&masquerade(&["10.1.0.0/24", "fd00:1::/64"], &[]))
        .unwrap();
    assert_eq!(tables(&node).len(), before + 2);
    // A family that is no longer wanted goes, too.
    firewall
        .ensure_masquerade(&masquerade(&["10.1.0.0/24"], &[]))
        .unwrap();
    assert_eq!(tables(&node).len(), before + 1);
    assert_eq!(firewall.remove_all().unwrap(), Change::Changed);
    assert_eq!(firewall.remove_all().unwrap(), Change::Unchanged);
    assert_eq!(tables(&node).len(), before);
}

#[test]
fn a_refused_transaction_names_the_statement_and_changes_nothing() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    node.must_run(&[
        "nft",
        "add table ip seaway; add chain ip seaway egress { type filter hook input priority 0; }",
    ]);
    let before = node.must_run(&["nft", "list", "ruleset"]);
    let error = firewall(&node)
        .ensure_masquerade(&masquerade(&["10.1.0.0/24"], &[]))
        .unwrap_err();
    assert_eq!(error.to_string(), "write the nftables table ip seaway");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "chain add ip seaway egress");
    assert_eq!(node.must_run(&["nft", "list", "ruleset"]), before);
}

/// pod 10.244.1.5 - node 10.244.1.1 / 172.30.0.1 - outside 172.30.0.2, 10.244.2.9
#[test]
fn packets_to_the_outside_get_the_nodes_address_and_others_keep_their_own() {
    if !require_root() {
        return;
    }
    let (pod, node, outside) = (Netns::new("pod"), Netns::new("node"), Netns::new("outside"));
    connect(
        &pod,
        "eth0",
        "10.244.1.5/24",
        &node,
        "pod0",
        "10.244.1.1/24",
    );
    connect(
        &node,
        "up0",
        "172.30.0.1/24",
        &outside,
        "eth0",
        "172.30.0.2/24",
    );
    pod.ip("route add default via 10.244.1.1");
    node.sysctl("ipv4/ip_forward", "1");
    outside.ip("addr add 10.244.2.9/32 dev lo");
    outside.ip("route add 10.244.1.0/24 via 172.30.0.1");
    node.ip("route add 10.244.2.0/24 via 172.30.0.2");
    let _web = outside.serve(Tcp, "0.0.0.0:80", "web");
    let seen = |address: &str| pod.ask(Tcp, address).unwrap().client.ip().to_string();
    assert_eq!(seen("172.30.0.2:80"), "10.244.1.5");
    firewall(&node)
        .ensure_masquerade(&masquerade(&["10.244.1.0/24"], &["10.244.0.0/16"]))
        .unwrap();
    assert_eq!(seen("172.30.0.2:80"), "172.30.0.1");
    assert_eq!(seen("10.244.2.9:80"), "10.244.1.5");
    firewall(&node).remove_all().unwrap();
    assert_eq!(seen("172.30.0.2:80"), "10.244.1.5");
}
