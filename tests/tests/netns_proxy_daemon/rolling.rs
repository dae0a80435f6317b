//! Pods are replaced one after the other, and nobody is refused.

use std::time::{Duration, Instant};

use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, connect, require_root};
use serde_json::{Value, json};

use crate::load::{Load, pause_until};
use crate::node::{API, Node};

/// Policies inside and outside, which both are to be kept by the pods of this node.
fn service(name: &str, ip: &str, node_port: u16, policy: &str) -> Value {
    let mut service = crate::service(name, ip);
    let spec = &mut service["spec"];
    spec["type"] = json!("NodePort");
    spec["externalTrafficPolicy"] = json!(policy);
    spec["internalTrafficPolicy"] = json!(policy);
    spec["ports"][0]["nodePort"] = json!(node_port);
    service
}

/// The pod that stays, one that is ready, and one that has been told to go.
fn slice(service: &str, ready: &[u8], leaving: &[u8]) -> Value {
    let mut slice = crate::slice(service, "10.244.0.5");
    let endpoint = |pod: &u8, ready: bool| {
        let conditions = json!({ "ready": ready, "serving": true, "terminating": !ready });
        let address = format!("10.244.0.{pod}");
        json!({ "addresses": [address], "conditions": conditions, "nodeName": "a" })
    };
    let ready = ready.iter().map(|pod| endpoint(pod, true));
    let leaving = leaving.iter().map(|pod| endpoint(pod, false));
    slice["endpoints"] = ready.chain(leaving).collect();
    slice
}

fn serve(node: &Node, pod: u8) -> Server {
    if pod > 5 {
        node.netns.ip(&format!("addr add 10.244.0.{pod}/32 dev lo"));
    }
    let address = format!("10.244.0.{pod}:8080");
    node.netns
        .serve(Protocol::Tcp, &address, &format!("pod{pod}"))
}

fn roll(flavour: &str) {
    let (node, outside) = (Node::new(), Netns::new("outside"));
    let ends = ("192.0.2.1/24", "192.0.2.2/24");
    connect(&node.netns, "uplink", ends.0, &outside, "far0", ends.1);
    let hint = format!("iptables-{flavour} -t mangle -N KUBE-IPTABLES-HINT");
    node.netns.must_run(&["sh", "-c", &hint]);
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    api.apply(NODES, crate::node("a", "172.30.0.11", "10.244.0.0/24"));
    let services = ["cluster", "local"];
    api.apply(SERVICES, service("cluster", "10.96.0.1", 30080, "Cluster"));
    api.apply(SERVICES, service("local", "10.96.0.2", 30081, "Local"));
    let tell = |ready: &[u8], leaving: &[u8]| {
        for service in services {
            api.apply(SLICES, slice(service, ready, leaving));
        }
    };
    tell(&[5], &[]);
    let _stays = serve(&node, 5);
    let flags = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];
    let daemon = node.start_with("iptables", &flags);
    daemon.wait_said(&["Programmed all Services"]);
    let within = Load::start(&node.netns, &["10.96.0.1:80", "10.96.0.2:80"]);
    let from_outside = Load::start(&outside, &["192.0.2.1:30080", "192.0.2.1:30081"]);
    let save = [format!("iptables-{flavour}-save")];
    let leads_to = |pod: u8| {
        let rules = node.netns.must_run(&save);
        rules.matches(&format!("10.244.0.{pod}:8080")).count() >= services.len()
    };
    let mut old: Option<(u8, Server)> = None;
    for pod in 6..10 {
        let new = serve(&node, pod);
        match &old {
            None => tell(&[5, pod], &[]),
            Some((leaving, _)) => tell(&[5, pod], &[*leaving]),
        }
        daemon.wait("the new pod", || leads_to(pod));
        if let Some((gone, server)) = old.replace((pod, new)) {
            daemon.wait("no way to the old pod", || {
                !node
                    .netns
                    .must_run(&save)
                    .contains(&format!("10.244.0.{gone}:8080"))
            });
            // Whoever is on the way still arrives.
            pause_until(Instant::now() + Duration::from_secs(2));
            tell(&[5, pod], &[]);
            drop(server);
        }
    }
    drop(daemon);
    let answered = [within.end(), from_outside.end()];
    assert!(answered.iter().all(|n| *n > 50), "{flavour}: {answered:?}");
}

#[test]
fn case_254_a_rolling_update_refuses_nobody_under_both_policies() {
    if require_root() {
        ["nft", "legacy"].into_iter().for_each(roll);
    }
}
