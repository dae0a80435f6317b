//! Our CNI plugin and pod network under upstream's kubelet and kube-proxy: IPv4, IPv6 and both,
//! with direct routes and with VXLAN, changed while traffic runs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod flow;
mod leftovers;
mod nodes;
mod path;
mod pods;
mod reach;
mod together;

use seaway_testbed::cluster::scenario::step;
use seaway_testbed::cluster::{Cluster, ClusterOptions, Families, NodeOptions};
use seaway_testbed::require_root;

use path::Mode;

#[test]
fn ipv4() {
    run(Families::V4);
}

#[test]
fn ipv6() {
    run(Families::V6);
}

#[test]
fn dual_stack() {
    run(Families::Dual);
}

#[track_caller]
fn run(families: Families) {
    if !require_root() {
        return;
    }
    let mut options = ClusterOptions::two(NodeOptions::pod_network(Mode::Direct.flags()));
    options.families = families;
    let mut cluster = Cluster::start(&options).unwrap();
    let cluster = &mut cluster;
    step("direct: pods", || pods::create(cluster)).unwrap();
    step("direct: everybody reaches everybody", || {
        path::wait(cluster, Mode::Direct)?;
        reach::everything(cluster)
    })
    .unwrap();
    step("from direct to VXLAN", || {
        flow::change(cluster, Mode::Vxlan)
    })
    .unwrap();
    step("VXLAN: pods from before and new ones", || {
        // Their MTU is that of direct routes, and they learn of the smaller one.
        reach::large(cluster, reach::Mtu::MayBeLearned)?;
        pods::replace(cluster)?;
        reach::everything(cluster)
    })
    .unwrap();
    // With both families, and with one of them.
    if families != Families::V6 {
        step("VXLAN: a node's addresses change", || {
            nodes::moves(cluster, Mode::Vxlan)
        })
        .unwrap();
        step("VXLAN: a node goes and comes back", || {
            nodes::goes_and_comes_back(cluster, Mode::Vxlan)
        })
        .unwrap();
    }
    step("from VXLAN to what a probe finds", || {
        flow::change(cluster, Mode::Auto)
    })
    .unwrap();
    step("auto: everybody reaches everybody", || {
        reach::everything(cluster)
    })
    .unwrap();
    step("pods leave nothing", || leftovers::none(cluster)).unwrap();
    cluster.check_alive().unwrap();
}
