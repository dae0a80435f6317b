//! What users of other service proxies have reported, held by the daemon itself.

use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::require_root;

use crate::node::{API, CONF, Node};

#[test]
fn o14_endpoints_that_stay_unready_fill_no_log() {
    const ROUNDS: usize = 10;
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    crate::fill(&api);
    api.apply(SERVICES, crate::service("sick", "10.96.0.9"));
    let daemon = node.start("iptables");
    daemon.wait("the CNI conf", || node.path(CONF).exists());
    let before = daemon.log().lines().count();
    for round in 0..ROUNDS {
        let mut slice = crate::slice("sick", &format!("10.244.0.{}", 20 + round));
        slice["endpoints"][0]["conditions"]["ready"] = false.into();
        api.apply(SLICES, slice);
        // Another one's change shows when the round is over.
        let address = format!("10.244.0.{}", 40 + round);
        api.apply(SLICES, crate::slice("web", &address));
        daemon.wait("the round", || node.has_rule(&address));
    }
    let log = daemon.log();
    let said = log.lines().count() - before;
    assert!(said < ROUNDS / 2, "{said} lines of {ROUNDS} rounds: {log}");
}
