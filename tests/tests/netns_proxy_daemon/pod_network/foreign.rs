//! Routes and chains of somebody else's that pods cannot pass: they are told of, counted, and
//! left alone.

use seaway_testbed::require_root;

use crate::pair::Pair;

#[test]
fn a_foreign_ipv6_route_that_wins_over_ours_is_told_and_counts_as_a_failure() {
    if !require_root() {
        return;
    }
    let to_b = "fd00:244:0:1::/64";
    for (verb, metric) in [("add", 512), ("append", 1024)] {
        let pair = Pair::start_dual(&["--pod-routes", "vxlan"]);
        let a = pair.a();
        a.wait_route(to_b, "dev seaway.vx");
        let failures = || a.metric("seaway_pod_network_sync_failures_total");
        let before = failures();
        let foreign = format!("-6 route {verb} {to_b} via fd00:30::99 metric {metric}");
        a.node.netns.ip(&foreign);
        a.daemon
            .wait_said(&["WARN", "somebody else has a route", to_b]);
        a.daemon
            .wait("a failure that counts", || failures() > before);
        // Neither is taken away.
        assert!(a.route(to_b).contains("dev seaway.vx"));
        assert!(a.route(to_b).contains("via fd00:30::99"));
    }
}

#[test]
fn a_foreign_chain_that_drops_what_is_forwarded_is_named_once_and_counted() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    let metric = || a.metric("seaway_pod_network_foreign_drop_chains");
    let nft = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        a.node.netns.must_run(&[&["nft"], &words[..]].concat());
    };
    assert!(metric() < 0.5);
    nft("add table inet guard");
    nft("add chain inet guard fw { type filter hook forward priority 0; policy drop; }");
    let named = ["WARN", "family=\"inet\"", "table=\"guard\"", "chain=\"fw\""];
    a.daemon.wait_said(&named);
    a.daemon.wait("the metric", || metric() > 0.5);
    // More of the same is no news, and who lets pods pass is still told of.
    nft("add rule inet guard fw ip saddr 10.244.0.0/16 accept");
    nft("add chain inet guard in { type filter hook input priority 0; policy accept; }");
    nft("delete table inet guard");
    a.daemon.wait("no such chain", || metric() < 0.5);
    assert_eq!(a.daemon.said(&named), 1, "{}", a.daemon.log());
}
