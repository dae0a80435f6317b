//! The program `seaway-proxy` as an operator meets it: flags, signals, logs, health,
//! an API server that is late, objects that are wrong, and removal.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "netns_proxy_daemon/api_away.rs"]
mod api_away;
#[path = "netns_proxy_daemon/attachments.rs"]
mod attachments;
#[path = "netns_proxy_daemon/choices.rs"]
mod choices;
#[path = "netns_proxy_daemon/cleanup.rs"]
mod cleanup;
#[path = "netns_proxy_daemon/conf.rs"]
mod conf;

#[path = "netns_proxy_daemon/dead_watch.rs"]
mod dead_watch;

#[path = "netns_proxy_daemon/drift.rs"]
mod drift;

#[path = "netns_proxy_daemon/dual.rs"]
mod dual;

#[path = "netns_proxy_daemon/egress.rs"]
mod egress;

#[path = "netns_proxy_daemon/explain.rs"]
mod explain;
#[path = "netns_proxy_daemon/explain_kernels.rs"]
mod explain_kernels;

#[path = "netns_proxy_daemon/killed.rs"]
mod killed;

#[path = "netns_proxy_daemon/kube_proxy.rs"]
mod kube_proxy;

#[path = "netns_proxy_daemon/leftovers.rs"]
mod leftovers;

#[path = "netns_proxy_daemon/load.rs"]
mod load;

#[path = "netns_proxy_daemon/metrics.rs"]
mod metrics;

#[path = "netns_proxy_daemon/mtu.rs"]
mod mtu;

#[path = "netns_proxy_daemon/objects.rs"]
mod objects;

#[path = "netns_proxy_daemon/pair.rs"]
mod pair;

#[path = "netns_proxy_daemon/pod_network.rs"]
mod pod_network;

#[path = "netns_proxy_daemon/pools.rs"]
mod pools;

#[path = "netns_proxy_daemon/node.rs"]
mod node;

#[path = "netns_proxy_daemon/ours.rs"]
mod ours;

#[path = "netns_proxy_daemon/pod.rs"]
mod pod;

#[path = "netns_proxy_daemon/reports.rs"]
mod reports;

#[path = "netns_proxy_daemon/restarts.rs"]
mod restarts;
#[path = "netns_proxy_daemon/retyped.rs"]
mod retyped;
#[path = "netns_proxy_daemon/rolling.rs"]
mod rolling;
#[path = "netns_proxy_daemon/sets.rs"]
mod sets;
#[path = "netns_proxy_daemon/starts.rs"]
mod starts;
#[path = "netns_proxy_daemon/stopping.rs"]
mod stopping;
#[path = "netns_proxy_daemon/storm.rs"]
mod storm;
#[path = "netns_proxy_daemon/switches.rs"]
mod switches;

#[path = "netns_proxy_daemon/taken.rs"]
mod taken;

#[path = "netns_proxy_daemon/takeover.rs"]
mod takeover;

#[path = "netns_proxy_daemon/tuning.rs"]
mod tuning;

#[path = "netns_proxy_daemon/upkeep.rs"]
mod upkeep;

#[path = "netns_proxy_daemon/uplink.rs"]
mod uplink;

#[path = "netns_proxy_daemon/uplink_changes.rs"]
mod uplink_changes;

#[path = "netns_proxy_daemon/variables.rs"]
mod variables;

#[path = "netns_proxy_daemon/wide.rs"]
mod wide;

use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use serde_json::{Value, json};

fn service(name: &str, ip: &str) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "clusterIP": ip, "clusterIPs": [ip], "ports": [{ "port": 80, "protocol": "TCP" }] },
    })
}

fn slice(service: &str, ip: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": format!("{service}-x"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [ip], "conditions": { "ready": true }, "nodeName": "a" }],
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
    })
}

fn node(name: &str, ip: &str, cidr: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": cidr, "podCIDRs": [cidr] },
        "status": { "addresses": [{ "type": "InternalIP", "address": ip }] },
    })
}

fn fill(api: &FakeApi) {
    api.apply(SERVICES, service("web", "10.96.0.1"));
    api.apply(SLICES, slice("web", "10.244.0.5"));
    api.apply(NODES, node("a", "172.30.0.11", "10.244.0.0/24"));
    api.apply(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
}
