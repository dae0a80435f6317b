//! A rule that somebody has altered by hand is named, with the daemon and without.

use nix::sys::signal::Signal;
use seaway_testbed::{XTABLES_WAIT, require_root};
use serde_json::{Value, json};

use super::{check, explain, filled, status};
use crate::node::Node;

fn as_json(node: &Node, mode: &str, address: &str) -> (i32, Value) {
    let (code, text, said) = explain(node, mode, &[address, "--output", "json"]);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {said}"));
    (code, value)
}

/// The line of the only rule in a table that holds `part`, as it is deleted by.
fn rule(node: &Node, table: &str, part: &str) -> String {
    let dump = node.netns.must_run(&["iptables-save", "-t", table]);
    let mut rules = dump.lines().filter(|line| line.contains(part));
    let rule = rules
        .next()
        .unwrap_or_else(|| panic!("{part} is not in {dump}"));
    rule.to_owned()
}

fn alter(node: &Node, table: &str, change: &str) {
    let command = format!("iptables {XTABLES_WAIT} -t {table} {change}");
    node.netns.must_run(&["sh", "-c", &command]);
}

fn delete(node: &Node, table: &str, rule: &str) {
    alter(node, table, &rule.replacen("-A ", "-D ", 1));
}

#[test]
fn a_rule_altered_by_hand_is_named_with_a_daemon_and_without() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || status(&node).0 == 0);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 0, "{text}");
    let facts = [
        "10.96.0.1:80/TCP: clusterIP of Service default/web",
        "internalTrafficPolicy: Cluster  (applies here)",
        "10.244.0.5:8080 on node a (this one), answers under policy Cluster",
        "10.244.1.7:8080 on node b, left out under policy Cluster: not ready",
        "Service default/thief: spec.ports[0]: 10.96.0.1:80/TCP belongs to default/web",
        "-j DNAT --to-destination 10.244.0.5:8080",
        "the kernel is as it should be",
    ];
    check(&text, &facts);
    let (code, value) = as_json(&node, "iptables", "10.96.0.1:80");
    assert_eq!((code, &value["agree"]), (0, &json!(true)), "{value}");
    assert_eq!(value["served"]["service"], "web");
    assert_eq!(value["kernel"]["backend"], "iptables");

    // The daemon may repair it meanwhile, so a look may come too late.
    let lost = rule(&node, "nat", "--to-destination 10.244.0.5:8080");
    let seen = (0..5).any(|_| {
        if rule_is_there(&node, &lost) {
            delete(&node, "nat", &lost);
        }
        let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
        code == 1 && text.contains("missing") && text.contains(&lost)
    });
    assert!(seen, "{lost} was never missed: {}", daemon.log());
    daemon.end(Signal::SIGKILL);

    // Nobody repairs any more.
    if rule_is_there(&node, &lost) {
        delete(&node, "nat", &lost);
    }
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text} {said}");
    check(
        &text,
        &["the daemon does not run; computed from the API now"],
    );
    check(&text, &["missing in nat, chain SEAWAY-SVC-", &lost]);
    check(&text, &facts[..5]);
    let (code, value) = as_json(&node, "iptables", "10.96.0.1:80");
    assert_eq!((code, &value["daemon"]), (1, &json!(false)));
    let difference = &value["kernel"]["differences"][0];
    assert_eq!(difference["want"], json!(lost), "{value}");
    assert_eq!(difference["deviation"], "missing");
    // Another Service is whole.
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.77:80"]);
    assert_eq!(code, 0, "{text} {said}");
    // A changed one, back in its place.
    let other = lost.replace("10.244.0.5:8080", "10.244.0.9:8080");
    alter(&node, "nat", &other);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["different", "wanted ", &lost, "found ", &other]);
    let (code, text, _) = status(&node);
    assert_eq!((code, text.trim()), (1, "the daemon does not run"));
}

fn rule_is_there(node: &Node, rule: &str) -> bool {
    let dump = node.netns.must_run(&["iptables-save", "-t", "nat"]);
    dump.lines().any(|line| line == rule)
}

/// What drops packets that would come out of a connection untranslated, on their way to the node.
#[test]
fn a_rule_against_stray_packets_that_is_deleted_by_hand_is_named_and_so_is_the_jump_to_it() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || status(&node).0 == 0);
    // Nobody repairs any more.
    daemon.end(Signal::SIGKILL);
    for (part, place) in [
        ("-A SEAWAY-INVALID ", "chain SEAWAY-INVALID"),
        ("-j SEAWAY-INVALID", "the built-in chains"),
    ] {
        let lost = rule(&node, "filter", part);
        let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
        assert_eq!(code, 0, "{text} {said}");
        check(&text, &[&lost, "the kernel is as it should be"]);
        delete(&node, "filter", &lost);
        let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
        assert_eq!(code, 1, "{text} {said}");
        check(&text, &[&format!("missing in filter, {place}: {lost}")]);
        alter(&node, "filter", &lost);
    }
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 0, "{text} {said}");
}
