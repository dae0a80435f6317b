//! What the Node object says and the operator chooses: zones, NodePorts, who is a pod.

use serde_json::{Value, json};

use crate::node::{API, Node};
use crate::{fill, node, service};
use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

/// As where somebody else's CNI runs.
const NO_NETWORK: [&str; 2] = ["--pod-network", "off"];

fn in_zone(zone: &str) -> Value {
    let mut node = node("a", "172.30.0.11", "10.244.0.0/24");
    node["metadata"]["labels"] = json!({ "topology.kubernetes.io/zone": zone });
    node
}

fn node_port(name: &str, ip: &str) -> Value {
    let mut service = service(name, ip);
    service["spec"]["type"] = json!("NodePort");
    service["spec"]["ports"][0]["nodePort"] = json!(30080);
    service
}

#[test]
fn hints_follow_the_nodes_zone_and_nothing_is_written_before_it_is_known() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let rules = node.rules();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), Some(NODES));
    let endpoint = |(ip, zone)| {
        json!({
            "addresses": [ip], "conditions": { "ready": true },
            "hints": { "forZones": [{ "name": zone }] },
        })
    };
    let mut slice = crate::slice("web", "10.244.0.5");
    slice["endpoints"] = json!([("10.244.0.5", "z1"), ("10.244.0.6", "z2")].map(endpoint));
    api.apply(SERVICES, service("web", "10.96.0.1"));
    api.apply(SLICES, slice);
    api.apply(NODES, in_zone("z1"));
    let daemon = node.start_with("iptables", &NO_NETWORK);
    daemon.wait_said(&["Services and EndpointSlices are in sync"]);
    daemon.wait("the request for Nodes", || {
        api.requests().iter().any(|r| r.contains(NODES))
    });
    assert_eq!(node.rules(), rules);
    api.release();
    daemon.wait_said(&["Programmed all Services"]);
    assert!(node.has_rule("10.244.0.5:8080"), "{}", daemon.log());
    assert!(!node.has_rule("10.244.0.6:8080"), "{:?}", node.rules());
    api.apply(NODES, in_zone("z2"));
    daemon.wait("the other zone's endpoint", || {
        node.has_rule("10.244.0.6:8080") && !node.has_rule("10.244.0.5:8080")
    });
}

#[test]
fn pods_are_told_apart_as_the_operator_says() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    for (flags, expect, absent) in [
        ("--cluster-cidr 10.244.0.0/16", "-i sw+", "-s 10.244.0.0/16"),
        (
            "--pod-network off --cluster-cidr 10.244.0.0/16",
            "-s 10.244.0.0/16",
            "-i sw+",
        ),
        (
            "--pod-network off --detect-local-mode NodeCIDR",
            "-s 10.244.0.0/24",
            "-s 10.244.0.0/16",
        ),
        (
            "--pod-network off --detect-local-mode BridgeInterface --pod-bridge-interface cni0",
            "-i cni0 ",
            "-s 10.244.0.0/24",
        ),
        (
            "--pod-network off --detect-local-mode InterfaceNamePrefix \
             --pod-interface-name-prefix cali",
            "-i cali+",
            "-i cni0",
        ),
    ] {
        let flags: Vec<_> = flags.split_whitespace().collect();
        let daemon = node_a.start_with("iptables", &flags);
        daemon.wait(&format!("{expect:?} and no {absent:?}"), || {
            node_a.has_rule(expect) && !node_a.has_rule(absent)
        });
        assert_eq!(daemon.terminate().code(), Some(0));
    }
    // Live, where the Node decides.
    let daemon = node_a.start_with(
        "iptables",
        &["--pod-network=off", "--detect-local-mode=NodeCIDR"],
    );
    daemon.wait("the node's range", || node_a.has_rule("-s 10.244.0.0/24"));
    api.apply(NODES, node("a", "172.30.0.11", "10.244.9.0/24"));
    daemon.wait("another range", || {
        node_a.has_rule("-s 10.244.9.0/24") && !node_a.has_rule("-s 10.244.0.0/24")
    });
}

#[test]
fn primary_node_port_addresses_follow_the_node() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    node_a.netns.ip("addr add 172.30.0.19/24 dev eth0");
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    api.apply(SERVICES, node_port("web", "10.96.0.1"));
    let flags = [&NO_NETWORK[..], &["--nodeport-addresses=primary"]].concat();
    let daemon = node_a.start_with("iptables", &flags);
    daemon.wait_said(&["Programmed all Services"]);
    assert!(node_a.ask("172.30.0.11:30080").contains("web"));
    assert!(node_a.ask("172.30.0.19:30080").contains("refused"));
    api.apply(NODES, node("a", "172.30.0.19", "10.244.0.0/24"));
    daemon.wait("the new address", || {
        node_a.ask("172.30.0.19:30080").contains("web")
    });
    assert!(node_a.ask("172.30.0.11:30080").contains("refused"));
}

#[test]
fn node_ports_on_loopback_come_with_a_sysctl_and_go_with_it() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    api.apply(SERVICES, node_port("web", "10.96.0.1"));
    let off = [&NO_NETWORK[..], &["--iptables-localhost-nodeports=false"]].concat();
    let start = |flags: &[&str]| {
        std::fs::remove_file(node_a.path("log")).ok();
        let daemon = node_a.start_with("iptables", flags);
        daemon.wait_said(&["Programmed all Services"]);
        daemon
    };
    assert_eq!(node_a.route_localnet(), "0");
    let daemon = start(&NO_NETWORK);
    assert_eq!(node_a.route_localnet(), "1");
    assert!(node_a.ask("127.0.0.1:30080").contains("web"));
    assert_eq!(daemon.terminate().code(), Some(0));
    // Switched off in a later run.
    assert_eq!(start(&off).terminate().code(), Some(0));
    assert_eq!(node_a.route_localnet(), "0");
    assert!(node_a.ask("127.0.0.1:30080").contains("refused"));
    // Taken off the node.
    assert_eq!(start(&NO_NETWORK).terminate().code(), Some(0));
    assert_eq!(node_a.route_localnet(), "1");
    node_a.cleanup();
    assert_eq!(node_a.route_localnet(), "0");
    // An operator's.
    node_a.netns.must_run(&[
        "sh",
        "-c",
        "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
    ]);
    assert_eq!(start(&NO_NETWORK).terminate().code(), Some(0));
    node_a.cleanup();
    assert_eq!(node_a.route_localnet(), "1");
}

#[test]
fn external_ips_are_served_unless_the_operator_forbids_it() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    let mut web = service("web", "10.96.0.1");
    web["spec"]["externalIPs"] = json!(["192.0.2.7"]);
    api.apply(SERVICES, web);
    for (flag, served) in [
        ("--allow-service-external-ips", true),
        ("--allow-service-external-ips=false", false),
    ] {
        std::fs::remove_file(node_a.path("log")).ok();
        let daemon = node_a.start_with("iptables", &[&NO_NETWORK[..], &[flag]].concat());
        daemon.wait_said(&["Programmed all Services"]);
        assert!(node_a.has_rule("10.96.0.1"), "{flag}: {:?}", node_a.rules());
        let found = node_a.has_rule("192.0.2.7");
        assert_eq!(found, served, "{flag}: {:?}", node_a.rules());
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn load_balancers_are_told_of_this_nodes_endpoints() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    let balanced = |policy: &str| {
        let mut service = node_port("web", "10.96.0.1");
        service["spec"]["type"] = json!("LoadBalancer");
        service["spec"]["externalTrafficPolicy"] = json!(policy);
        service["spec"]["healthCheckNodePort"] = json!(30999);
        service
    };
    let check = || node_a.get_from("127.0.0.1:30999", "/");
    api.apply(SERVICES, balanced("Local"));
    let daemon = node_a.start_with("iptables", &NO_NETWORK);
    daemon.wait("200", || check().is_ok_and(|(code, _)| code == 200));
    let (_, body) = check().unwrap();
    assert!(body.contains("\"localEndpoints\":1"), "{body}");
    // A Node that goes is the business of /healthz.
    let mut leaving = node("a", "172.30.0.11", "10.244.0.0/24");
    leaving["spec"]["taints"] = json!([{ "key": "ToBeDeletedByClusterAutoscaler" }]);
    api.apply(NODES, leaving);
    daemon.wait("an ineligible node", || {
        node_a.get("/healthz").unwrap().0 == 503
    });
    assert_eq!(check().unwrap().0, 200);
    let mut elsewhere = crate::slice("web", "10.244.0.5");
    elsewhere["endpoints"][0]["nodeName"] = json!("b");
    api.apply(SLICES, elsewhere);
    daemon.wait("503", || check().unwrap().0 == 503);
    api.apply(SERVICES, balanced("Cluster"));
    daemon.wait("a closed port", || check().is_err());
    assert_eq!(daemon.terminate().code(), Some(0));
    // The other backend serves no load balancer, and says so.
    api.apply(SERVICES, balanced("Local"));
    api.apply(SLICES, crate::slice("web", "10.244.0.5"));
    let daemon = node_a.start_with("ebpf", &NO_NETWORK);
    daemon.wait_said(&["Programmed all Services", "backend=\"ebpf\""]);
    assert!(check().is_err(), "{}", daemon.log());
}

/// kube-proxy's answer failed where nobody serves its /healthz (kubernetes#87854).
#[test]
fn load_balancers_are_answered_where_healthz_is_switched_off() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    let mut service = node_port("web", "10.96.0.1");
    service["spec"]["type"] = json!("LoadBalancer");
    service["spec"]["externalTrafficPolicy"] = json!("Local");
    service["spec"]["healthCheckNodePort"] = json!(30999);
    api.apply(SERVICES, service);
    let mut command = node_a.command("run");
    command.arg("--kubeconfig").arg(node_a.path("kubeconfig"));
    command.args(NO_NETWORK).args(["--node-name", "a"]);
    command.args(["--service-proxy", "iptables"]);
    command.args(["--healthz-bind-address=", "--metrics-bind-address="]);
    let daemon = node_a.launch(&mut command);
    daemon.wait("200", || {
        let answer = node_a.get_from("127.0.0.1:30999", "/");
        let healthy = "\"serviceProxyHealthy\":true";
        answer.is_ok_and(|(code, body)| code == 200 && body.contains(healthy))
    });
    assert!(node_a.get("/healthz").is_err());
    assert!(node_a.get_from("127.0.0.1:10249", "/metrics").is_err());
    assert_eq!(daemon.terminate().code(), Some(0));
}
