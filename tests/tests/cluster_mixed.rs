//! Our proxy and CNI plugin under the stock kubelet, one node per kind of proxy: what a cluster
//! looks like that replaces kube-proxy and its CNI plugin only.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use seaway_testbed::cluster::scenario::{scaling_works, service_answers, step};
use seaway_testbed::cluster::{Agent, Cluster, ClusterOptions, Cni, NodeOptions, Proxy};
use seaway_testbed::require_root;

#[test]
fn our_network_under_stock_kubelets() {
    if !require_root() {
        return;
    }
    let node = |proxy| NodeOptions {
        agent: Agent::Kubelet,
        proxy,
        cni: Cni::Seaway,
        pod_network: &[],
    };
    let nodes = vec![node(Proxy::SeawayEbpf), node(Proxy::SeawayIptables)];
    let cluster = Cluster::start(&ClusterOptions::of(nodes)).unwrap();
    step("a ClusterIP answers on both nodes", || {
        service_answers(&cluster)
    })
    .unwrap();
    step("scaling to none and back", || scaling_works(&cluster)).unwrap();
}
