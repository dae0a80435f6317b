//! Frontends besides cluster IPs: who gets them, and what applies to them.

use super::*;
use crate::desired::{FrontendKind, LocalSources, NodePortAddresses};
use crate::node::{Detect, NodePorts};

/// A Service with a NodePort, a load balancer IP and external IPs.
fn balanced(name: &str, created: &str, ip: &str, external: &[&str]) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "creationTimestamp": created},
        "spec": {"type": "LoadBalancer", "clusterIP": ip, "externalIPs": external,
                 "ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    })
}

const OLD: &str = "2024-01-01T00:00:00Z";
const NEW: &str = "2024-01-02T00:00:00Z";

fn frontends(compiled: &Compiled, name: &str) -> Vec<String> {
    let ports = compiled.desired.v4.services.iter();
    let own = ports.filter(|(port, _)| port.name == name);
    own.flat_map(|(_, port)| &port.frontends)
        .map(|frontend| format!("{} {frontend}", frontend.kind))
        .collect()
}

fn compiled_on(node: &Node, services: &[Value]) -> Compiled {
    let mut model = Model::new();
    for object in services {
        model.apply_service(&serde_json::from_value(object.clone()).unwrap());
    }
    compile(&model, node)
}

#[test]
fn every_kind_of_frontend() {
    let web = balanced("web", OLD, "10.96.0.1", &["5.6.7.8"]);
    let compiled = compiled_on(&Node::named("n1"), std::slice::from_ref(&web));
    assert_eq!(
        frontends(&compiled, "web"),
        [
            "NodePort NodePort 30080/TCP",
            "load balancer IP 1.2.3.4:80/TCP",
            "external IP 5.6.7.8:80/TCP",
            "clusterIP 10.96.0.1:80/TCP",
        ]
    );
    assert!(compiled.skipped.is_empty(), "{:?}", compiled.skipped);
    // Case 103
    let node = Node {
        external_ips: false,
        ..Node::named("n1")
    };
    let compiled = compiled_on(&node, &[web]);
    assert_eq!(frontends(&compiled, "web").len(), 3);
    assert_eq!(compiled.skipped[0].reason, SkipReason::ExternalIpsOff);
}

#[test]
fn an_external_ip_takes_nothing_from_others() {
    // The thief is older, and still gets neither the cluster IP nor the load
    // balancer IP; of two external IPs the older Service has it.
    let thief = balanced("thief", OLD, "10.96.0.2", &["10.96.0.1", "9.9.9.9"]);
    let victim = balanced("victim", NEW, "10.96.0.1", &["9.9.9.9"]);
    for services in [[thief.clone(), victim.clone()], [victim, thief]] {
        let compiled = compiled_on(&Node::named("n1"), &services);
        assert_eq!(
            frontends(&compiled, "victim"),
            ["clusterIP 10.96.0.1:80/TCP"]
        );
        let told: Vec<String> = compiled.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "Service default/thief: spec.ports[0]: 10.96.0.1:80/TCP belongs to default/victim:http",
                "Service default/victim: spec.ports[0]: NodePort 30080/TCP belongs to default/thief:http",
                "Service default/victim: spec.ports[0]: 1.2.3.4:80/TCP belongs to default/thief:http",
                "Service default/victim: spec.ports[0]: 9.9.9.9:80/TCP belongs to default/thief:http",
            ]
        );
    }
}

#[test]
fn an_address_that_is_both_keeps_its_source_ranges() {
    // Case 134
    let web = balanced("web", OLD, "10.96.0.1", &["1.2.3.4"]);
    let compiled = compiled_on(&Node::named("n1"), &[web]);
    let port = compiled.desired.v4.services.values().next().unwrap();
    let kinds: Vec<FrontendKind> = port.frontends.iter().map(|f| f.kind).collect();
    assert!(kinds.contains(&FrontendKind::LoadBalancer));
    assert!(!kinds.contains(&FrontendKind::ExternalIp));
    assert!(compiled.skipped.is_empty());
}

#[test]
fn source_ranges_let_the_nodes_own_vips_in() {
    let mut web = balanced("web", OLD, "10.96.0.1", &[]);
    web["spec"]["loadBalancerSourceRanges"] = json!(["192.168.0.0/24"]);
    let ranges = |address: &str| {
        let node = Node {
            addresses: vec![address.parse().unwrap()],
            ..Node::named("n1")
        };
        let compiled = compiled_on(&node, std::slice::from_ref(&web));
        let port = compiled.desired.v4.services.values().next().unwrap();
        let ranges = port.source_ranges.clone().unwrap();
        ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Cases 126 and 127
    assert_eq!(ranges("192.168.0.2"), ["1.2.3.4/32", "192.168.0.0/24"]);
    assert_eq!(ranges("192.168.9.2"), ["192.168.0.0/24"]);
}

#[test]
fn ranges_of_one_family_close_the_other() {
    // Case 129, decided otherwise: docs/decisions.md.
    let mut web = balanced("web", OLD, "10.96.0.1", &[]);
    web["spec"]["clusterIPs"] = json!(["10.96.0.1", "fd00::1"]);
    web["spec"]["loadBalancerSourceRanges"] = json!(["192.168.0.0/24"]);
    web["status"]["loadBalancer"]["ingress"] = json!([{"ip": "1.2.3.4"}, {"ip": "fd00::9"}]);
    let compiled = compiled_on(&Node::named("n1"), &[web]);
    let v6 = compiled.desired.v6.services.values().next().unwrap();
    assert_eq!(v6.source_ranges.as_deref(), Some(&[][..]));
    let expected = SkipReason::NoRangeOfFamily { family: Family::V6 };
    assert_eq!(compiled.skipped[0].reason, expected);
}

#[test]
fn health_checks_count_ready_addresses_of_this_node() {
    // Cases 220 to 222
    let mut web = balanced("web", OLD, "10.96.0.1", &[]);
    web["spec"]["externalTrafficPolicy"] = json!("Local");
    web["spec"]["healthCheckNodePort"] = json!(32000);
    web["spec"]["ports"] = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "nodeName": "n1"},
        {"addresses": ["10.0.0.2"], "nodeName": "n1"},
        {"addresses": ["10.0.0.3"], "nodeName": "n1",
         "conditions": {"ready": false, "serving": true, "terminating": true}},
        {"addresses": ["10.0.0.4"], "nodeName": "n2"},
    ]);
    let mut slice = slice("s", "web", http(8080), endpoints.clone());
    slice["ports"] = json!([http(8080), {"name": "https", "port": 8443}]);
    let count = |slice: &Value| {
        let compiled = compiled(std::slice::from_ref(&web), std::slice::from_ref(slice));
        let checks = compiled.desired.v4.health_checks;
        let (service, check) = checks.first_key_value().unwrap();
        assert_eq!(
            (service.to_string().as_str(), check.port),
            ("default/web", 32000)
        );
        assert!(compiled.desired.v6.health_checks.is_empty());
        check.endpoints
    };
    assert_eq!(count(&slice), 2);
    slice["endpoints"] = json!([endpoints[2], endpoints[3]]);
    assert_eq!(count(&slice), 0);
}

#[test]
fn what_the_node_serves_and_whom_it_takes_for_a_pod() {
    let networks = |list: &[&str]| list.iter().map(|n| n.parse().unwrap()).collect::<Vec<_>>();
    let halves = |node_ports: NodePorts| {
        let node = Node {
            node_ports,
            addresses: vec!["192.168.0.2".parse().unwrap()],
            detect: Detect::Networks(networks(&["10.0.0.0/8"])),
            ..Node::named("n1")
        };
        let desired = compiled_on(&node, &[]).desired;
        assert_eq!(
            desired.v4.local_sources,
            LocalSources::Networks(networks(&["10.0.0.0/8"]))
        );
        assert_eq!(desired.v6.local_sources, LocalSources::Unknown);
        (desired.v4.node_ports, desired.v6.node_ports)
    };
    let some = |list: &[&str], localhost| NodePortAddresses {
        networks: Some(networks(list)),
        localhost,
    };
    let all = |localhost| NodePortAddresses {
        networks: None,
        localhost,
    };
    assert_eq!(halves(NodePorts::All), (all(true), all(false)));
    // Case 71, and 73 decided otherwise.
    assert_eq!(
        halves(NodePorts::Primary),
        (some(&["192.168.0.2/32"], false), some(&[], false))
    );
    // Cases 68 and 69; 70 decided otherwise.
    let v4_only = NodePorts::Networks(networks(&["192.168.0.0/24"]));
    assert_eq!(
        halves(v4_only),
        (some(&["192.168.0.0/24"], false), some(&[], false))
    );
    let mixed = NodePorts::Networks(networks(&["0.0.0.0/0", "2001:db8::/64"]));
    assert_eq!(halves(mixed), (all(true), some(&["2001:db8::/64"], false)));
    let loopback = NodePorts::Networks(networks(&["127.0.0.1/32"]));
    assert_eq!(halves(loopback).0, some(&["127.0.0.1/32"], true));
}
