//! What others have flushed is written again.

use seaway_testbed::peer::Protocol::{self, Tcp, Udp};
use seaway_testbed::{Netns, XTABLES_WAIT, connect, require_root};
use serde_json::{Value, json};

use crate::node::{Node, address, assert_reaches};
use crate::verbs::{add, mapping, output, repair};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];
const OUTSIDE: [&str; 2] = ["192.0.2.1:8080", "[fd00:192::1]:8080"];

/// A node with both families and a neighbour outside.
fn node() -> (Node, Netns) {
    let (node, outside) = (Node::with_ranges(&BOTH), Netns::new("outside"));
    let ends = ("192.0.2.1/24", "192.0.2.2/24");
    connect(&node.netns, "uplink", ends.0, &outside, "far", ends.1);
    node.netns.ip("addr add fd00:192::1/64 dev uplink nodad");
    outside.ip("addr add fd00:192::2/64 dev far nodad");
    (node, outside)
}

fn answers(outside: &Netns) -> Vec<Option<String>> {
    let ask = |protocol: Protocol, to: &str| outside.ask(protocol, to).ok().map(|a| a.name);
    let all = OUTSIDE.iter().flat_map(|to| [ask(Tcp, to), ask(Udp, to)]);
    all.collect()
}

#[test]
fn case_64_what_was_flushed_is_written_again() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (web, other) = (Netns::new("web"), Netns::new("other"));
    let _servers = [Tcp, Udp].map(|protocol| web.serve(protocol, "[::]:80", "web"));
    let ports = [mapping("", 8080, "tcp"), mapping("", 8080, "udp")];
    add(&mut node, "web", &web, &ports);
    add(
        &mut node,
        "other",
        &other,
        &[mapping("127.0.0.1", 9090, "tcp")],
    );
    let web_answers = vec![Some(String::from("web")); 4];
    assert_eq!(answers(&outside), web_answers);
    let nothing = json!({
        "hostPorts": 0, "rules": false, "forward": false, "links": 0, "routes": 0,
        "settings": 0, "skipped": [], "failures": [],
    });
    assert_eq!(repair(&node), nothing, "what is there stays");

    node.netns.must_run(&["nft", "flush", "ruleset"]);
    // As firewalld leaves it.
    for words in [
        "add table inet theirs",
        "add chain inet theirs c",
        "add rule inet theirs c drop",
    ] {
        let words: Vec<&str> = std::iter::once("nft").chain(words.split(' ')).collect();
        node.netns.must_run(&words);
    }
    let theirs = || {
        node.netns
            .must_run(&["nft", "-a", "list", "table", "inet", "theirs"])
    };
    let before = theirs();
    assert!(answers(&outside).iter().all(Option::is_none));
    let repaired = repair(&node);
    // Two of web's in each family, and one that is for IPv4 alone.
    assert_eq!(repaired["hostPorts"], 5, "{repaired}");
    assert_eq!(repaired["rules"], true);
    assert_eq!(answers(&outside), web_answers);
    assert_eq!(theirs(), before);
    assert_eq!(repair(&node), nothing);

    // A part of it only, as somebody's own clean-up may do.
    node.netns
        .must_run(&["nft", "flush", "map", "ip", "seaway", "hostports-any"]);
    assert_eq!(repair(&node)["hostPorts"], 2);
    node.netns
        .must_run(&["nft", "flush", "chain", "ip", "seaway", "hostports-in"]);
    assert_eq!(repair(&node)["rules"], true);
    assert_eq!(answers(&outside), web_answers);
    for id in ["web", "other"] {
        node.del(id, "");
    }
    assert_eq!(repair(&node), nothing);
    assert!(answers(&outside).iter().all(Option::is_none));
}

#[test]
fn case_64_a_flushed_forward_accepts_pods_again() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let to = [address(&node.add("a", &a)), address(&node.add("b", &b))];
    for iptables in ["iptables-nft", "ip6tables-nft"] {
        node.netns.must_run(&[iptables, "-P", "FORWARD", "DROP"]);
    }
    assert!(
        a.ask_udp(&format!("{}:9", to[1]))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::TimedOut)
    );
    assert_eq!(repair(&node)["forward"], true);
    assert_reaches(&a, &to[1]);
    assert_reaches(&b, "fd00:1:2::2");
    assert_eq!(repair(&node)["forward"], false);
    node.netns.must_run(&["iptables-nft", "-F", "FORWARD"]);
    assert_eq!(repair(&node)["forward"], true);
    assert_reaches(&b, &to[0]);
    // No pods, no reason to change anybody's FORWARD.
    for id in ["a", "b"] {
        node.del(id, "");
    }
    node.netns.must_run(&["iptables-nft", "-F", "FORWARD"]);
    assert_eq!(repair(&node)["forward"], false);
}

/// A kernel that has never been asked for them has no such files.
fn legacy_tables(node: &Node) -> String {
    let script = "for f in /proc/net/ip_tables_names /proc/net/ip6_tables_names; do
        if [ -e $f ]; then cat $f; fi
    done";
    node.netns.must_run(&["sh", "-c", script])
}

#[test]
fn case_64_iptables_legacy_accepts_where_it_is_in_use_and_only_there() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.add("a", &a);
    let there = address(&node.add("b", &b));
    repair(&node);
    assert_eq!(legacy_tables(&node), "", "nobody has used it");
    if !node
        .netns
        .run(&["iptables-legacy", XTABLES_WAIT, "-P", "FORWARD", "DROP"])
        .status
        .success()
    {
        eprintln!("skipped: this kernel has no iptables-legacy");
        return;
    }
    node.netns
        .must_run(&["ip6tables-legacy", XTABLES_WAIT, "-P", "FORWARD", "DROP"]);
    assert!(
        a.ask_udp(&format!("{there}:9"))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::TimedOut)
    );
    assert_eq!(repair(&node)["forward"], true);
    assert_reaches(&a, &there);
    assert_reaches(&b, "fd00:1:2::2");
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        let want = "-P FORWARD DROP\n\
            -A FORWARD -i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT\n\
            -A FORWARD -o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT\n";
        let shown = [program, XTABLES_WAIT, "-S", "FORWARD"];
        assert_eq!(node.netns.must_run(&shown), want);
    }
    let nft = node.netns.must_run(&["nft", "list", "tables"]);
    assert!(!nft.contains("filter"), "the flavours are not mixed: {nft}");
    assert_eq!(repair(&node)["forward"], false);
    // An ADD does the same.
    node.netns
        .must_run(&["iptables-legacy", XTABLES_WAIT, "-F", "FORWARD"]);
    node.add("c", &Netns::new("c"));
    assert_reaches(&a, &there);
}

#[test]
fn case_50_a_corrupt_record_is_told_and_keeps_nobody_from_repair() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let pods = ["web", "broken", "strange"].map(Netns::new);
    let _server = pods[0].serve(Tcp, "[::]:80", "web");
    for (pod, (id, port)) in pods
        .iter()
        .zip([("web", 8080), ("broken", 8081), ("strange", 8082)])
    {
        add(&mut node, id, pod, &[mapping("", port, "tcp")]);
    }
    for record in node.records() {
        let path = node.record_dir().join(&record);
        if record.contains("=broken:") {
            std::fs::write(&path, "{\"bootId\":").unwrap();
        } else if record.contains("=strange:") {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("\"tcp\"", "\"tsp\"")).unwrap();
        }
    }
    std::fs::write(node.record_dir().join("README"), "mine").unwrap();
    node.netns.must_run(&["nft", "flush", "ruleset"]);
    let repaired = repair(&node);
    assert_eq!(repaired["hostPorts"], 2, "{repaired}");
    let skipped = repaired["skipped"].to_string();
    for part in ["container broken", "container strange", "tsp"] {
        assert!(skipped.contains(part), "{skipped}");
    }
    assert_eq!(outside.ask_tcp("192.0.2.1:8080").unwrap(), "web");
    for id in ["web", "broken", "strange"] {
        node.del(id, "");
    }
}

/// The port's old pod has come back to life, so to say: the new one keeps it.
#[test]
fn case_64_a_port_that_leads_elsewhere_by_now_is_not_taken_away() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (old, new) = (Netns::new("old"), Netns::new("new"));
    let _servers =
        [(&old, "old"), (&new, "new")].map(|(pod, name)| pod.serve(Tcp, "[::]:80", name));
    add(&mut node, "old", &old, &[mapping("", 8080, "tcp")]);
    node.netns.must_run(&["nft", "flush", "ruleset"]);
    add(&mut node, "new", &new, &[mapping("", 8080, "tcp")]);
    let repaired = repair(&node);
    assert_eq!(repaired["hostPorts"], 0, "{repaired}");
    assert_eq!(
        repaired["skipped"].as_array().unwrap().len(),
        2,
        "{repaired}"
    );
    assert_eq!(outside.ask_tcp("192.0.2.1:8080").unwrap(), "new");
}

#[test]
fn case_68_records_without_ports_of_an_older_version_are_read() {
    if !require_root() {
        return;
    }
    let (mut node, _outside) = node();
    let pod = Netns::new("pod");
    add(&mut node, "c1", &pod, &[mapping("", 8080, "tcp")]);
    for record in node.records() {
        let path = node.record_dir().join(record);
        let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(value.as_object_mut().unwrap().remove("hostPorts").is_some());
        std::fs::write(&path, value.to_string()).unwrap();
    }
    assert_eq!(repair(&node)["skipped"], json!([]));
    node.del("c1", "");
    node.netns.ip("link del uplink");
    node.assert_empty();
}

#[test]
fn wrong_words_are_bad_usage_and_no_data_is_nothing_to_do() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    for words in [["sweep", "--apart", "x"], ["repair", "--nework", "x"]] {
        let output = output(&node, &words);
        assert_eq!(output.status.code(), Some(64));
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(repair(&node)["failures"], json!([]));
    assert_eq!(crate::verbs::sweep(&node), crate::verbs::nothing());
    assert!(!node.dir.path().join("cni").exists());
}
