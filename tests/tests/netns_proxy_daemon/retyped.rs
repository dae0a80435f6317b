//! A Service that gets another type, policy or affinity while it is served. The oracle is who
//! answers whom, and whom the pod takes for its client.

use std::collections::BTreeSet;
use std::time::Duration;

use seaway_testbed::fake_api::{SERVICES, SLICES};
use seaway_testbed::peer::{self, Held, PATIENCE, Protocol};
use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::wide::{NODE_ADDRESS, Wide};
use crate::{fill, service, slice};

const CLUSTER_IP: &str = "10.96.0.1:80";
const NODE_PORT: &str = "192.0.2.1:30080";
const BALANCED: &str = "198.51.100.1:80";
/// Whoever is not answered by then is not answered.
const SOON: Duration = Duration::from_secs(1);

/// The Service `web` as the API server has it after a change to this type.
fn of_type(kind: &str) -> Value {
    let mut object = service("web", "10.96.0.1");
    object["spec"]["type"] = json!(kind);
    if matches!(kind, "NodePort" | "LoadBalancer") {
        object["spec"]["ports"][0]["nodePort"] = json!(30080);
    }
    if kind == "LoadBalancer" {
        let ingress = json!([{ "ip": "198.51.100.1" }]);
        object["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    }
    if kind == "ExternalName" {
        object["spec"] = json!({ "type": kind, "externalName": "web.example.org" });
    }
    object
}

/// Who has the Service's addresses while it does not: a host elsewhere, and the node itself.
fn owners(w: &Wide) -> [peer::Server; 3] {
    for ip in ["10.96.0.1", "198.51.100.1"] {
        w.other.ip(&format!("addr add {ip}/32 dev lo"));
        w.node.netns.ip(&format!("route add {ip} via 172.31.0.2"));
    }
    [
        w.other.serve(Protocol::Tcp, CLUSTER_IP, "elsewhere"),
        w.other.serve(Protocol::Tcp, BALANCED, "elsewhere"),
        w.node.netns.serve(Protocol::Tcp, NODE_PORT, "node"),
    ]
}

/// Who answers at cluster IP, NodePort and load balancer IP.
fn answers(from: &Netns) -> [String; 3] {
    [CLUSTER_IP, NODE_PORT, BALANCED].map(|address| {
        let asked = from.ask_tcp(address);
        asked.unwrap_or_else(|error| format!("{:?}", error.kind()))
    })
}

#[test]
fn a_service_whose_type_changes_is_served_where_the_new_type_says_and_nowhere_else() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let _owners = owners(&w);
    let daemon = w.start(&[]);
    let open = || Held::open(BALANCED.parse().unwrap(), PATIENCE);
    let mut held = None;
    for (kind, expect) in [
        ("ClusterIP", ["web", "node", "elsewhere"]),
        ("NodePort", ["web", "web", "elsewhere"]),
        ("LoadBalancer", ["web", "web", "web"]),
        ("ExternalName", ["elsewhere", "node", "elsewhere"]),
        ("ClusterIP", ["web", "node", "elsewhere"]),
        ("LoadBalancer", ["web", "web", "web"]),
        ("ClusterIP", ["web", "node", "elsewhere"]),
    ] {
        w.api.apply(SERVICES, of_type(kind));
        for from in [&w.client, &w.node.netns] {
            daemon.wait(&format!("{expect:?} of {kind}"), || answers(from) == expect);
        }
        if kind == "LoadBalancer" && held.is_none() {
            held = Some(w.client.enter(open).unwrap());
        }
    }
    // Whoever has a connection keeps it.
    let mut held = held.unwrap();
    assert_eq!(held.answer.name, "web");
    held.check().unwrap();
}

/// A Service of one pod, which says that it is on this node, or on another one.
fn balanced(name: &str, n: u16, policy: &str) -> Value {
    let mut object = service(name, &format!("10.96.0.{n}"));
    let spec = &mut object["spec"];
    spec["type"] = json!("LoadBalancer");
    spec["externalTrafficPolicy"] = json!(policy);
    spec["ports"][0]["nodePort"] = json!(30000 + n);
    if policy == "Local" {
        spec["healthCheckNodePort"] = json!(32000 + n);
    }
    object
}

/// Whom the pod takes for its client, if it is asked at all.
fn seen(from: &Netns, port: u16) -> String {
    let address = format!("{NODE_ADDRESS}:{port}").parse().unwrap();
    let asked = from.enter(|| peer::ask(Protocol::Tcp, address, SOON));
    match asked {
        Ok(answer) => answer.client.ip().to_string(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Case 101: NodePorts of a node that has the pod, of one that has not, and of the client's own.
#[test]
fn a_policy_that_changes_to_and_fro_decides_who_is_answered_and_seen() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _pod = w.other.serve(Protocol::Tcp, "10.244.1.7:8080", "pod");
    for (name, node) in [("here", "a"), ("there", "b")] {
        let mut slice = slice(name, "10.244.1.7");
        slice["endpoints"][0]["nodeName"] = json!(node);
        w.api.apply(SLICES, slice);
    }
    let daemon = w.start(&[]);
    let health = |port: u16| {
        let answer = w.node.get_from(&format!("{NODE_ADDRESS}:{port}"), "/");
        answer.map_or(0, |(code, _)| code)
    };
    let (client, node, masqueraded) = ("192.0.2.2", &w.node.netns, "172.31.0.1");
    for (policy, here, there, healths) in [
        ("Local", client, "TimedOut", [200, 503]),
        // Nobody asks for health any more, and so nobody answers.
        ("Cluster", masqueraded, masqueraded, [0, 0]),
        ("Local", client, "TimedOut", [200, 503]),
    ] {
        w.api.apply(SERVICES, balanced("here", 101, policy));
        w.api.apply(SERVICES, balanced("there", 102, policy));
        let is = |from: &Netns, port: u16, whom: &str| {
            let what = format!("{whom} at {port} with {policy}");
            daemon.wait(&what, || seen(from, port) == whom);
        };
        is(&w.client, 30101, here);
        is(&w.client, 30102, there);
        // The node's own connections go where the pod is, whatever the policy.
        is(node, 30101, masqueraded);
        is(node, 30102, masqueraded);
        daemon.wait(&format!("{healths:?} with {policy}"), || {
            [health(32101), health(32102)] == healths
        });
    }
}

/// Case 187.
#[test]
fn affinity_that_is_switched_on_and_off_counts_for_new_connections() {
    const ASKS: usize = 12;
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let pods = [
        (&w.node.netns, "10.244.0.5"),
        (&w.node.netns, "10.244.0.6"),
        (&w.other, "10.244.1.7"),
    ];
    let _servers = pods.map(|(at, ip)| at.serve(Protocol::Tcp, &format!("{ip}:8080"), ip));
    let mut slice = slice("web", pods[0].1);
    let ready = |(_, ip): &(&Netns, &str)| json!({ "addresses": [ip], "nodeName": "a" });
    slice["endpoints"] = pods.iter().map(ready).collect();
    w.api.apply(SLICES, slice);
    let daemon = w.start(&[]);
    let pods: BTreeSet<String> = pods.map(|(_, ip)| ip.to_owned()).into();
    // Of three pods one is met alone by chance in one of 177,147 rounds.
    let met = || -> BTreeSet<String> {
        let asks = (0..ASKS).map(|_| w.ask(Protocol::Tcp, CLUSTER_IP));
        asks.collect()
    };
    let open = || Held::open(CLUSTER_IP.parse().unwrap(), PATIENCE);
    let mut held = Vec::new();
    for affinity in ["None", "ClientIP", "None", "ClientIP"] {
        let mut web = service("web", "10.96.0.1");
        web["spec"]["sessionAffinity"] = json!(affinity);
        w.api.apply(SERVICES, web);
        let is_sticky = affinity == "ClientIP";
        daemon.wait(affinity, || (met().len() == 1) == is_sticky);
        let met = met();
        assert!(met.is_subset(&pods), "{met:?}");
        assert!(!is_sticky || met.len() == 1, "{affinity}: {met:?}");
        held.push(w.client.enter(open).unwrap());
        // Connections that there are stay where they are.
        for held in &mut held {
            held.check().unwrap();
        }
    }
}
