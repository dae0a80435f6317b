//! Kubernetes objects in, rules out: `golden/NAME.yaml` → `golden/NAME.iptables`.
//!
//! `UPDATE_EXPECT=1 cargo test -p seaway-proxy-iptables` rewrites the results,
//! which are then reviewed like code.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use seaway_proxy_core::backend::Backend;
use seaway_proxy_core::node::Detect;
use seaway_proxy_core::{Model, Node, compile};
use seaway_proxy_iptables::{Config, Flavour, Iptables};
use serde_json::{Value, json};

fn backend(config: Config) -> Iptables {
    // With the flavour given there is nothing to wait for.
    let config = Config {
        flavour: Some(Flavour::Nft),
        ipv6: Some(true),
        affinity: Some(true),
        ..config
    };
    match pin!(Iptables::new(config)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(backend) => backend.unwrap(),
        Poll::Pending => panic!("no command should run"),
    }
}

#[track_caller]
fn check(name: &str, node: &Node) {
    let file = |ending: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.{ending}"))
    };
    let mut model = Model::new();
    let yaml = fs::read_to_string(file("yaml")).unwrap();
    for object in serde_saphyr::from_multiple::<Value>(&yaml).unwrap() {
        match object["kind"].as_str() {
            Some("Service") => model.apply_service(&serde_json::from_value(object).unwrap()),
            Some("EndpointSlice") => model.apply_slice(&serde_json::from_value(object).unwrap()),
            other => panic!("kind {other:?}"),
        };
    }
    let compiled = compile(&model, node);
    let rendered = backend(Config::default())
        .render(&compiled.desired)
        .to_string();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file("iptables"), &rendered).unwrap();
    }
    let expected = fs::read_to_string(file("iptables")).unwrap();
    assert_eq!(
        rendered, expected,
        "{name}: UPDATE_EXPECT=1 rewrites the file"
    );
}

fn node() -> Node {
    Node {
        localhost_node_ports: false,
        ..Node::named("n1")
    }
}

#[test]
fn basic() {
    check("basic", &node());
}

#[test]
fn masquerade() {
    let networks = ["10.244.0.0/16", "10.245.0.0/16"].map(|n| n.parse().unwrap());
    let detect = Detect::Networks(networks.to_vec());
    check("masquerade", &Node { detect, ..node() });
}

#[test]
fn many() {
    check("many", &node());
}

#[test]
fn external() {
    let networks = ["10.244.0.0/16", "fd00:244::/64"].map(|n| n.parse().unwrap());
    let node = Node {
        detect: Detect::Networks(networks.to_vec()),
        addresses: vec!["192.168.0.2".parse().unwrap()],
        ..Node::named("n1")
    };
    check("external", &node);
}

#[test]
fn affinity() {
    check("affinity", &node());
}

/// Case 245: above 1,000 endpoints kube-proxy leaves out comments, and looks for drift less.
#[test]
fn a_service_has_the_same_rules_however_many_endpoints_there_are() {
    let service = |name: &str, ip: &str| {
        let object = json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
        });
        serde_json::from_value(object).unwrap()
    };
    let slice = |name: &str, group: u8, endpoints: u8| {
        let endpoint = |i: u8| json!({"addresses": [format!("10.244.{group}.{i}")]});
        let object = json!({
            "metadata": {"namespace": "default", "name": name,
                         "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
            "endpoints": (1..=endpoints).map(endpoint).collect::<Vec<_>>(),
        });
        serde_json::from_value(object).unwrap()
    };
    let mut model = Model::new();
    model.apply_service(&service("web", "10.96.0.10"));
    model.apply_slice(&slice("web", 0, 5));
    let rules = |model: &Model| {
        let rendered = backend(Config::default()).render(&compile(model, &node()).desired);
        let text = rendered.to_string();
        let lines = text.lines().filter(|line| line.contains("SEAWAY-SVC-"));
        let lines = lines.filter(|line| !line.starts_with("-A SEAWAY-NET-"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let few = rules(&model);
    assert!(few.len() >= 6, "{few:#?}");
    for i in 1..=20 {
        let name = format!("other-{i}");
        model.apply_service(&service(&name, &format!("10.97.0.{i}")));
        model.apply_slice(&slice(&name, i, 100));
    }
    let many = rules(&model);
    assert!(many.len() > 2000);
    let of_web = |line: &&String| !line.starts_with("-A SEAWAY-ADDRESSES");
    let missing: Vec<_> = few
        .iter()
        .filter(of_web)
        .filter(|line| !many.contains(line))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn names_cannot_break_out_of_their_comment() {
    use seaway_proxy_core::desired::*;
    let name = ServicePortName {
        namespace: "default\"\n-A INPUT -j ACCEPT\n".to_owned(),
        name: "w\\eb".repeat(100),
        port: String::new(),
    };
    let addr = "10.96.0.1".parse().unwrap();
    let frontend = Frontend {
        addr,
        port: 80,
        protocol: Protocol::Tcp,
        kind: FrontendKind::ClusterIp,
    };
    let mut desired = DesiredState::default();
    desired.v4.services.insert(
        name,
        ServicePort {
            frontends: vec![frontend],
            ..ServicePort::default()
        },
    );
    let rendered = backend(Config::default()).render(&desired).to_string();
    assert!(
        !rendered.lines().any(|line| line.starts_with("-A INPUT")),
        "{rendered}"
    );
    assert!(
        rendered.contains("\"default??-A INPUT -j ACCEPT?/w?ebw?eb"),
        "{rendered}"
    );
    assert!(rendered.lines().all(|line| line.len() < 400), "{rendered}");
}
