//! One line per reason: who answers, who does not, and why.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::kernel::{Deviation, compare};
use super::*;
use crate::compile;
use crate::node::Detect;

mod addresses;
mod clients;
mod endpoints;

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

#[test]
fn what_is_not_programmed_is_told_by_kind_object_field_and_reason() {
    let left = Left {
        kind: "Service".to_owned(),
        object: "default/web".to_owned(),
        field: "spec.ports[0].port".to_owned(),
        reason: "another Service has it".to_owned(),
    };
    let told = "Service default/web: spec.ports[0].port: another Service has it";
    assert_eq!(left.to_string(), told);
}
