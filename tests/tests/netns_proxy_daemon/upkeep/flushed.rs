//! A flushed ruleset: hostPorts and the masquerade come back, in both families, and the latter
//! without the plugin as well.

use std::path::Path;
use std::time::Instant;

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};

use super::Kept;

#[test]
fn case_64_a_flushed_ruleset_comes_back_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let web = Netns::new("web");
    let _server = web.serve(Tcp, "0.0.0.0:80", "web");
    kept.add("web", &web, Some(8080));
    kept.both_answer(&web, Instant::now());
    kept.daemon
        .wait("the first repair", || kept.calls("repair") > 0);

    kept.nft("flush ruleset");
    kept.both_answer(&web, Instant::now());
    let repaired = |what: &str| {
        let name = format!("seaway_cni_repairs_total{{what=\"{what}\"}}");
        kept.metric(&name)
    };
    // Nothing is counted that was not lost, and only when the plugin has ended, which is after
    // it has written.
    kept.daemon.wait("the count", || repaired("hostPorts") == 1);

    // As firewalld reloads: everything is flushed, its own tables are made anew.
    kept.nft("add table inet firewalld");
    let reload = "flush ruleset; add table inet firewalld; \
        add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; }; \
        add rule inet firewalld filter_FORWARD ct state established,related accept; \
        add rule inet firewalld filter_FORWARD meta mark 0x17 drop";
    kept.node.netns.must_run(&["nft", reload]);
    let reloaded = Instant::now();
    let theirs = || kept.nft("-a list table inet firewalld");
    let before = theirs();
    kept.both_answer(&web, reloaded);
    assert_eq!(theirs(), before, "foreign rules are untouched");

    // Each loss costs a repair and one that finds nothing to do; what we write ourselves
    // costs none.
    kept.daemon
        .wait("the repairs", || kept.calls("repair") >= 4);
    let other = Netns::new("other");
    kept.add("other", &other, Some(8081));
    kept.nft("flush ruleset");
    kept.both_answer(&web, Instant::now());
    assert!(kept.calls("repair") <= 9, "{}", kept.calls("repair"));
    kept.del("other");
    kept.del("web");
    // A pod that goes takes its ports along, and they stay away.
    kept.daemon.wait("a look", || kept.calls("repair") >= 6);
    assert!(!kept.nft("list table ip seaway").contains("8080"));
    assert_eq!(kept.metric("seaway_cni_upkeep_failures_total"), 0);
    kept.daemon
        .wait("the count of all three", || repaired("hostPorts") == 3);
    // One that is flushed before it has been seen once is put back, and not counted.
    assert!(
        (1..=3).contains(&repaired("masquerade")),
        "{}",
        kept.daemon.log()
    );
}

#[test]
fn case_64_what_is_flushed_of_ipv6_comes_back_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::dual("off");
    let web = Netns::new("web");
    let _server = web.serve(Tcp, "[::]:80", "web");
    kept.add("web", &web, Some(8080));
    let answer = || {
        let since = Instant::now();
        kept.both_answer(&web, since);
        kept.both_answer_over_ipv6(&web, since);
    };
    answer();
    kept.daemon
        .wait("the first repair", || kept.calls("repair") > 0);
    // The first line of the table has its number, which is another one when it is made anew.
    let table = || {
        let listed = kept.nft("-a list table ip6 seaway");
        listed.lines().next().map(str::to_owned)
    };
    // The second time it is IPv6's alone.
    for flush in ["flush ruleset", "delete table ip6 seaway"] {
        let before = table();
        kept.nft(flush);
        answer();
        assert_ne!(table(), before, "{flush}: {}", kept.daemon.log());
    }
    assert_eq!(kept.metric("seaway_cni_upkeep_failures_total"), 0);
    kept.del("web");
    assert!(kept.outside.ask_tcp("[fd00:192::1]:8080").is_err());
}

#[test]
fn case_64_without_the_plugin_the_masquerade_comes_back_all_the_same() {
    if !require_root() {
        return;
    }
    let absent = Path::new("/nonexistent/seaway-cni");
    let kept = Kept::with_plugin("off", absent, &["--sweep-interval", "1"]);
    let rules = || kept.nft("list ruleset").contains("chain egress-masquerade");
    kept.daemon.wait("the masquerade", rules);
    kept.daemon
        .wait_said(&["Leaving hostPorts", "/nonexistent/seaway-cni"]);
    for _ in 0..2 {
        kept.nft("flush ruleset");
        kept.within(Instant::now(), "the masquerade", rules);
    }
    assert_eq!(kept.daemon.said(&["Leaving hostPorts"]), 1);
    assert_eq!(
        kept.daemon.said(&["WARN", "upkeep"]),
        0,
        "{}",
        kept.daemon.log()
    );
}
