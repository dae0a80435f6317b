//! The walking skeleton on a real control plane: two nodes of our agent, CNI plugin and proxy,
//! once per kind of proxy.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use seaway_testbed::cluster::scenario::{
    daemons_may_die, kubectl_works, logs_go_with_their_pod, refusals_are_told, scaling_works,
    service_answers, step,
};
use seaway_testbed::cluster::{Cluster, ClusterOptions, NodeOptions, Proxy};
use seaway_testbed::require_root;

#[test]
fn two_nodes_with_the_ebpf_proxy() {
    run(NodeOptions::seaway(Proxy::SeawayEbpf));
}

#[test]
fn two_nodes_with_the_iptables_proxy() {
    run(NodeOptions::seaway(Proxy::SeawayIptables));
}

#[track_caller]
fn run(node: NodeOptions) {
    if !require_root() {
        return;
    }
    let mut cluster = Cluster::start(&ClusterOptions::two(node)).unwrap();
    step("a ClusterIP answers on both nodes", || {
        service_answers(&cluster)
    })
    .unwrap();
    step("scaling to none and back", || scaling_works(&cluster)).unwrap();
    step("logs, exec, describe, delete", || kubectl_works(&cluster)).unwrap();
    step("what cannot be is said", || refusals_are_told(&cluster)).unwrap();
    step("logs go with their pod", || {
        logs_go_with_their_pod(&mut cluster)
    })
    .unwrap();
    step("agent and proxy dead for 30 s", || {
        daemons_may_die(&mut cluster)
    })
    .unwrap();
    cluster.check_alive().unwrap();
}
