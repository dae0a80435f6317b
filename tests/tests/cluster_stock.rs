//! The cluster fixture and its scenario on upstream's programs: what they can do here, so that
//! a failure of ours is not the fixture's.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use seaway_testbed::cluster::scenario::{
    daemons_may_die, kubectl_works, scaling_works, service_answers, step,
};
use seaway_testbed::cluster::{Cluster, ClusterOptions, NodeOptions};
use seaway_testbed::require_root;

#[test]
fn two_nodes_of_stock_parts() {
    if !require_root() {
        return;
    }
    let mut cluster = Cluster::start(&ClusterOptions::two(NodeOptions::stock())).unwrap();
    step("a ClusterIP answers on both nodes", || {
        service_answers(&cluster)
    })
    .unwrap();
    step("scaling to none and back", || scaling_works(&cluster)).unwrap();
    step("logs, exec, describe, delete", || kubectl_works(&cluster)).unwrap();
    step("agent and proxy dead for 30 s", || {
        daemons_may_die(&mut cluster)
    })
    .unwrap();
}
