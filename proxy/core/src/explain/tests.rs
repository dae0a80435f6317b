//! One line per reason: who answers, who does not, and why.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::kernel::{Deviation, compare};
use super::*;
use crate::compile;
use crate::node::Detect;

/// A node `n1` in zone a, with pods at 10.0.1.0/24.
struct World {
    model: Model,
    node: Node,
    surroundings: Surroundings,
}

impl World {
    fn new() -> Self {
        let node = Node {
            zone: Some("a".to_owned()),
            detect: Detect::InterfacePrefix("sw".to_owned()),
            ..Node::named("n1")
        };
        Self {
            model: Model::new(),
            node,
            surroundings: Surroundings {
                addresses: ["172.30.0.11".parse().unwrap()].into(),
                own_pods: vec!["10.0.1.0/24".parse().unwrap()],
                all_pods: vec!["10.0.0.0/16".parse().unwrap()],
            },
        }
    }

    /// Changes of a Service that has everything.
    fn service(mut self, name: &str, patch: impl FnOnce(&mut Value)) -> Self {
        let mut object = json!({
            "metadata": {"namespace": "default", "name": name,
                         "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1",
                     "ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}},
        });
        patch(&mut object);
        self.model
            .apply_service(&serde_json::from_value(object).unwrap());
        self
    }

    /// `ADDRESS NODE STATE [zone]`
    fn slice(mut self, endpoints: &[&str], patch: impl FnOnce(&mut Value)) -> Self {
        let endpoint = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let (ready, serving, terminating) = match words[2] {
                "ready" => (true, true, false),
                "leaving" => (false, true, true),
                "gone" => (false, false, true),
                "unready" => (false, false, false),
                other => panic!("state {other}"),
            };
            let zones: Vec<Value> = words.iter().skip(3).map(|z| json!({"name": z})).collect();
            json!({
                "addresses": [words[0]], "nodeName": words[1], "hints": {"forZones": zones},
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            })
        };
        let mut object = json!({
            "metadata": {"namespace": "default", "name": format!("s{}", endpoints.join("")),
                         "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        });
        patch(&mut object);
        self.model
            .apply_slice(&serde_json::from_value(object).unwrap());
        self
    }

    fn explain(&self, target: &str, from: Option<&str>) -> Explanation {
        let compiled = compile(&self.model, &self.node);
        let facts = Facts {
            model: &self.model,
            node: &self.node,
            desired: &compiled.desired,
            skipped: &compiled.skipped,
            surroundings: &self.surroundings,
        };
        let from = from.map(|from| from.parse().unwrap());
        explain(facts, target.parse().unwrap(), from)
    }

    #[track_caller]
    fn check(&self, target: &str, from: Option<&str>, parts: &[&str]) {
        let text = self.explain(target, from).to_string();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }
}

fn nothing(_: &mut Value) {}

fn policy(field: &'static str) -> impl FnOnce(&mut Value) {
    move |object| object["spec"][field] = json!("Local")
}

#[test]
fn targets_are_read() {
    for (text, shown) in [
        ("10.96.0.1:80", "10.96.0.1:80/TCP"),
        ("10.96.0.1:53/udp", "10.96.0.1:53/UDP"),
        ("[fd00::1]:9/SCTP", "[fd00::1]:9/SCTP"),
    ] {
        assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
    }
    let bad = |text: &str| text.parse::<Target>().unwrap_err();
    assert_eq!(bad("10.96.0.1"), BadTarget::Address("10.96.0.1".to_owned()));
    assert_eq!(
        bad("fd00::1:80/TCP"),
        BadTarget::Address("fd00::1:80".to_owned())
    );
    assert_eq!(
        bad("10.96.0.1:80/ICMP"),
        BadTarget::Protocol("ICMP".to_owned())
    );
    assert_eq!(bad("10.96.0.1:0"), BadTarget::Port);
}

#[test]
fn each_address_says_its_kind() {
    let world = World::new()
        .service("web", nothing)
        .slice(&["10.0.1.5 n1 ready"], nothing);
    for (target, kind) in [
        ("10.96.0.1:80", "clusterIP"),
        ("192.0.2.9:80", "load balancer IP"),
        ("172.30.0.11:30080", "NodePort"),
        ("127.0.0.1:30080", "NodePort"),
    ] {
        let head = format!("{target}/TCP: {kind} of Service default/web, port http");
        world.check(
            target,
            None,
            &[&head, "10.0.1.5:8080 on node n1 (this one), answers"],
        );
    }
    let nobody = "no Service port is served here";
    world.check(
        "10.96.0.1:81",
        None,
        &[nobody, "note: 10.96.0.1:80/TCP is default/web:http's"],
    );
    world.check("10.96.0.1:80/UDP", None, &[nobody]);
    world.check(
        "172.30.0.99:30080",
        None,
        &[nobody, "no address of this node"],
    );
    world.check(
        "172.30.0.11:30080/UDP",
        None,
        &[nobody, "of another protocol"],
    );
    for elsewhere in ["10.96.0.99:80", "172.30.0.11:30099", "172.30.0.11:80"] {
        let notes = world.explain(elsewhere, None).notes;
        assert_eq!(notes, [""; 0], "{elsewhere}");
    }
}

#[test]
fn endpoints_say_why_they_are_left_out() {
    let base = || World::new().service("web", nothing);
    let ready = "10.0.1.5 n1 ready";
    for (endpoint, reason) in [
        ("10.0.2.6 n2 unready", "not ready"),
        ("10.0.2.6 n2 gone", "terminating, and does not serve"),
        ("10.0.2.6 n2 leaving", "terminating, while 1 are ready"),
    ] {
        let world = base().slice(&[ready, endpoint], nothing);
        let line = format!("10.0.2.6:8080 on node n2, left out under policy Cluster: {reason}");
        world.check("10.96.0.1:80", None, &[&line]);
    }
    let zones = ["10.0.1.5 n1 ready a", "10.0.2.6 n2 ready b"];
    base().slice(&zones, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "topology hints: for zone a",
            "hints give it to zone b, this node is in a",
        ],
    );
    let renamed = |slice: &mut Value| slice["ports"][0]["name"] = json!("https");
    let world = base().slice(&[ready], renamed);
    world.check(
        "10.96.0.1:80",
        None,
        &["10.0.1.5 on node n1 (this one)", "is named \"http\""],
    );
    let udp = |slice: &mut Value| slice["ports"][0]["protocol"] = json!("UDP");
    base().slice(&["10.0.2.6 n2 ready"], udp).check(
        "10.96.0.1:80",
        None,
        &["10.0.2.6 on node n2, left out"],
    );
    base()
        .slice(&[ready], udp)
        .check("10.96.0.1:80", None, &["its port \"http\" is UDP"]);
    let v6 = |slice: &mut Value| {
        slice["addressType"] = json!("IPv6");
        slice["endpoints"][0]["addresses"] = json!(["fd00::5"]);
    };
    base()
        .slice(&[ready], v6)
        .check("10.96.0.1:80", None, &["IPv6, this address is IPv4"]);
    base().check("10.96.0.1:80", None, &["none in any slice"]);
    let leaving = ["10.0.2.6 n2 leaving", "10.0.2.7 n2 unready"];
    base().slice(&leaving, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "no endpoint is ready, those that terminate answer",
            "10.0.2.6:8080 on node n2, answers",
        ],
    );
}

#[test]
fn what_fits_is_told_once_and_no_fallback_without_need() {
    let fallback = |endpoints: &[&str], target: &str| {
        let world = World::new().service("web", policy("externalTrafficPolicy"));
        let served = world.slice(endpoints, nothing).explain(target, None).served;
        let served = served.unwrap();
        assert_eq!(served.endpoints.len(), endpoints.len());
        served.policies.terminating_fallback
    };
    let (cluster_ip, node_port) = ("10.96.0.1:80", "172.30.0.11:30080");
    let (ready, leaving) = ("10.0.1.5 n1 ready", "10.0.1.6 n1 leaving");
    let none = [""; 0];
    for target in [cluster_ip, node_port] {
        assert_eq!(fallback(&[ready, leaving], target), none);
        assert_eq!(fallback(&["10.0.1.6 n1 unready"], target), none);
        assert_eq!(fallback(&[], target), none);
    }
    assert_eq!(fallback(&[leaving], cluster_ip), ["Cluster"]);
    assert_eq!(fallback(&[leaving], node_port), ["Cluster", "Local"]);
    let elsewhere = "10.0.2.6 n2 ready";
    assert_eq!(fallback(&[elsewhere, leaving], node_port), ["Local"]);
}

#[test]
fn policy_local_looks_at_this_node() {
    let endpoints = ["10.0.1.5 n1 ready", "10.0.2.6 n2 ready"];
    let internal = World::new().service("web", policy("internalTrafficPolicy"));
    internal.slice(&endpoints, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "internalTrafficPolicy: Local  (applies here)",
            "10.0.2.6:8080 on node n2, left out under policy Local: not on this node",
        ],
    );
    let external = World::new().service("web", policy("externalTrafficPolicy"));
    external.slice(&endpoints, nothing).check(
        "172.30.0.11:30080",
        None,
        &[
            "externalTrafficPolicy: Local  (applies here)",
            "10.0.2.6:8080 on node n2, answers under policy Cluster, left out under policy Local",
            "a pod of this node: answered by 10.0.1.5:8080 or 10.0.2.6:8080\n",
            "this node itself: answered by 10.0.1.5:8080 or 10.0.2.6:8080, masqueraded",
            "a client from outside: answered by 10.0.1.5:8080\n",
        ],
    );
}

#[test]
fn clients_are_what_their_address_says() {
    let endpoints = ["10.9.1.5 n1 ready", "10.9.2.6 n2 ready"];
    let ranges = |object: &mut Value| {
        object["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    };
    let world = World::new()
        .service("web", ranges)
        .slice(&endpoints, nothing);
    for (from, client, masquerade) in [
        ("10.0.1.77", Client::PodHere, false),
        ("10.9.1.5", Client::PodHere, false),
        ("10.9.2.6", Client::OtherPod, true),
        ("10.0.2.77", Client::OtherPod, true),
        ("172.30.0.11", Client::Node, true),
        ("127.0.0.1", Client::Node, true),
        ("8.8.8.8", Client::Outside, true),
    ] {
        let found = world.explain("10.96.0.1:80", Some(from));
        let [judgement] = found.served.unwrap().clients.try_into().unwrap();
        assert_eq!(
            (judgement.client, judgement.masquerade),
            (client, masquerade),
            "{from}"
        );
        assert_eq!(judgement.outcome, Outcome::Answered, "{from}");
    }
    world.check(
        "192.0.2.9:80",
        Some("8.8.8.8"),
        &["dropped: not within spec.load"],
    );
    world.check(
        "192.0.2.9:80",
        Some("192.0.2.1"),
        &["answered by", "192.0.2.0/24"],
    );
    let empty = World::new().service("web", nothing);
    empty.check(
        "10.96.0.1:80",
        None,
        &["refused: no endpoint answers on any node"],
    );
}

/// Where nothing tells pods from others, none is spared policy Local.
#[test]
fn a_pod_that_cannot_be_told_is_a_client_from_outside() {
    let endpoints = ["10.0.1.5 n1 ready", "10.0.2.6 n2 ready"];
    let world = World::new().service("web", policy("externalTrafficPolicy"));
    let mut world = world.slice(&endpoints, nothing);
    let answering = |world: &World| {
        let found = world.explain("172.30.0.11:30080", Some("10.0.1.77"));
        let [judgement] = found.served.unwrap().clients.try_into().unwrap();
        assert_eq!(judgement.client, Client::PodHere);
        judgement.endpoints.len()
    };
    assert_eq!(answering(&world), 2);
    world.node.detect = Detect::Off;
    assert_eq!(answering(&world), 1);
    // By networks a pod is one wherever it runs, and nobody else is.
    for (network, count) in [("10.0.0.0/16", 2), ("10.7.0.0/16", 1)] {
        world.node.detect = Detect::Networks(vec![network.parse().unwrap()]);
        assert_eq!(answering(&world), count, "{network}");
    }
}

#[test]
fn what_touches_the_address_is_told() {
    let young = |object: &mut Value| {
        object["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        object["spec"]["clusterIP"] = json!("10.96.0.2");
        object["spec"]["externalIPs"] = json!(["10.96.0.1", "127.0.0.9"]);
        object["spec"]["ports"][0]["nodePort"] = json!(30081);
    };
    let bad = |slice: &mut Value| {
        slice["ports"] = json!([{"name": "http", "port": 8080}, {"name": "x", "port": 0}]);
    };
    let world = World::new().service("web", nothing).service("thief", young);
    let world = world.slice(&["10.0.1.5 n1 ready"], bad);
    let skipped = |target: &str| {
        let found = world.explain(target, None).skipped;
        found
            .into_iter()
            .map(|s| format!("{} {}", s.object, s.field))
            .collect::<Vec<_>>()
    };
    let of_slice = "default/s10.0.1.5 n1 ready ports[1].port".to_owned();
    let contested = "default/thief spec.ports[0]".to_owned();
    assert_eq!(skipped("10.96.0.1:80"), [contested, of_slice]);
    assert_eq!(
        skipped("127.0.0.9:80"),
        ["default/thief spec.externalIPs[1]"]
    );
    assert_eq!(skipped("10.96.0.3:80"), [""; 0]);
    let head = |target: &str| world.explain(target, None).to_string();
    assert!(head("10.96.0.1:80").contains("not programmed\n"));
    assert!(!head("10.96.0.3:80").contains("not programmed"));

    // A NodePort that another Service has, which is another one in each family.
    let rival = |object: &mut Value| {
        object["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        object["spec"]["clusterIP"] = json!("10.96.0.2");
        object["status"] = json!({});
    };
    let mut world = World::new().service("web", nothing).service("rival", rival);
    let own = ["172.30.0.11", "fd00::11"].map(|addr| addr.parse().unwrap());
    world.surroundings.addresses = own.into();
    let skipped = |target: &str| world.explain(target, None).skipped.len();
    assert_eq!(skipped("172.30.0.11:30080"), 1);
    assert_eq!(skipped("[fd00::11]:30080"), 0);
    assert_eq!(skipped("172.30.0.11:30081"), 0);
    assert_eq!(skipped("172.30.0.11:30080/UDP"), 0);
    assert_eq!(skipped("172.30.0.12:30080"), 0);
}

#[test]
fn json_has_the_same_facts() {
    let world = World::new()
        .service("web", nothing)
        .slice(&["10.0.1.5 n1 ready"], nothing);
    let found = world.explain("10.96.0.1:80", Some("8.8.8.8"));
    let value = serde_json::to_value(&found).unwrap();
    assert_eq!(value["served"]["policies"]["applies"], "internal");
    assert_eq!(value["served"]["clients"][0]["outcome"], "answered");
    assert_eq!(serde_json::from_value::<Explanation>(value).unwrap(), found);
}

#[test]
fn differences_are_paired_by_place() {
    let found = |want: &[&str], have: &[&str]| {
        let all = compare("x", want, have);
        all.iter()
            .map(|d| (d.deviation, d.want.clone(), d.have.clone()))
            .collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found(&["a", "b"], &["a", "b"]), []);
    assert_eq!(
        found(&["a", "b"], &["b"]),
        [(Deviation::Missing, text("a"), None)]
    );
    assert_eq!(
        found(&["a"], &["a", "a"]),
        [(Deviation::Extra, None, text("a"))]
    );
    assert_eq!(
        found(&["a", "b"], &["a", "c"]),
        [(Deviation::Different, text("b"), text("c"))]
    );
    assert_eq!(
        found(&["a", "b"], &["b", "a"]),
        [(Deviation::Order, None, None)]
    );
}
