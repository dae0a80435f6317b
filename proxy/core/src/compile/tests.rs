//! Who answers: one line per endpoint condition and per conflict.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::needless_pass_by_value, reason = "rows are written with json!")]

use serde_json::{Value, json};

use super::*;
use crate::desired::Endpoint;

mod external;
mod topology;

/// `name created clusterIP ports`
fn service(name: &str, created: &str, ip: &str, ports: Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "creationTimestamp": created},
        "spec": {"clusterIP": ip, "ports": ports},
    })
}

fn slice(name: &str, service: &str, port: Value, endpoints: Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name,
                     "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [port], "endpoints": endpoints,
    })
}

fn compiled(services: &[Value], slices: &[Value]) -> Compiled {
    let mut model = Model::new();
    for object in services {
        model.apply_service(&serde_json::from_value(object.clone()).unwrap());
    }
    for object in slices {
        model.apply_slice(&serde_json::from_value(object.clone()).unwrap());
    }
    compile(&model, &Node::named("n1"))
}

/// The endpoints of the only Service port; local ones carry a star.
fn chosen(compiled: &Compiled) -> Vec<String> {
    let (_, port) = compiled.desired.v4.services.first_key_value().unwrap();
    shown(&port.cluster)
}

fn shown(endpoints: &[Endpoint]) -> Vec<String> {
    let shown = |e: &Endpoint| format!("{}{}", e.addr, if e.local { "*" } else { "" });
    endpoints.iter().map(shown).collect()
}

fn web() -> Value {
    service(
        "web",
        "2024-01-01T00:00:00Z",
        "10.96.0.1",
        json!([{"name": "http", "port": 80}]),
    )
}

fn http(port: u16) -> Value {
    json!({"name": "http", "port": port})
}

/// `[address, ready, serving, terminating]`, each condition absent if null.
fn endpoint(address: &str, conditions: [Value; 3]) -> Value {
    let [ready, serving, terminating] = conditions;
    json!({"addresses": [address], "nodeName": if address.ends_with('1') {"n1"} else {"n2"},
           "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
}

#[track_caller]
fn check(endpoints: Value, expected: &[&str]) {
    let compiled = compiled(&[web()], &[slice("s", "web", http(8080), endpoints)]);
    assert_eq!(chosen(&compiled), expected);
}

#[test]
fn ready_endpoints_else_those_that_serve_while_terminating() {
    let (y, n, unset) = (json!(true), json!(false), Value::Null);
    let ready = endpoint("10.0.0.1", [y.clone(), unset.clone(), unset.clone()]);
    let unknown = endpoint("10.0.0.2", [unset.clone(), unset.clone(), unset.clone()]);
    let not_ready = endpoint("10.0.0.3", [n.clone(), n.clone(), n.clone()]);
    let leaving = endpoint("10.0.0.4", [n.clone(), y.clone(), y.clone()]);
    let gone = endpoint("10.0.0.5", [n.clone(), n.clone(), y.clone()]);
    let serves_unready = endpoint("10.0.0.6", [n.clone(), y.clone(), n.clone()]);
    // publishNotReadyAddresses: ready counts, whatever else is said.
    let forced = endpoint("10.0.0.7", [y.clone(), n.clone(), y.clone()]);

    check(
        json!([ready, unknown, not_ready, leaving]),
        &["10.0.0.1:8080*", "10.0.0.2:8080"],
    );
    check(
        json!([not_ready, leaving, gone, serves_unready]),
        &["10.0.0.4:8080"],
    );
    check(json!([not_ready, gone, serves_unready]), &[]);
    check(json!([leaving, forced]), &["10.0.0.7:8080"]);
    check(json!([]), &[]);
}

#[test]
fn a_service_without_slices_is_refused() {
    let compiled = compiled(&[web()], &[]);
    assert_eq!(chosen(&compiled), [""; 0]);
    assert_eq!(compiled.desired.v4.services.len(), 1);
}

#[test]
fn ports_match_by_name_and_protocol() {
    let ready = json!([{"addresses": ["10.0.0.2"]}]);
    let with = |port: Value| compiled(&[web()], &[slice("s", "web", port, ready.clone())]);
    assert_eq!(
        chosen(&with(json!({"name": "http", "port": 1}))),
        ["10.0.0.2:1"]
    );
    assert_eq!(chosen(&with(json!({"name": "p80", "port": 1}))), [""; 0]);
    assert_eq!(
        chosen(&with(json!({"name": "http", "port": 1, "protocol": "UDP"}))),
        [""; 0]
    );
}

#[test]
fn slices_of_one_service_are_united() {
    let ready = |ip: &str| json!([{"addresses": [ip]}]);
    let slices = [
        slice("s", "web", http(8080), ready("10.0.0.2")),
        slice("t", "web", http(9090), ready("10.0.0.3")),
        slice("u", "web", http(8080), ready("10.0.0.2")),
        slice("v", "other", http(8080), ready("10.0.0.4")),
    ];
    assert_eq!(
        chosen(&compiled(&[web()], &slices)),
        ["10.0.0.2:8080", "10.0.0.3:9090"]
    );
}

#[test]
fn of_two_copies_the_living_one_counts() {
    let dying = json!([{"addresses": ["10.0.0.2"],
        "conditions": {"ready": false, "serving": true, "terminating": true}}]);
    let ready = json!([{"addresses": ["10.0.0.2"]}]);
    let starting = json!([{"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]);
    for (a, b, expected) in [
        (&dying, &ready, vec!["10.0.0.2:8080"]),
        (&dying, &starting, vec![]),
    ] {
        for (first, second) in [(a, b), (b, a)] {
            let slices = [
                slice("s", "web", http(8080), first.clone()),
                slice("t", "web", http(8080), second.clone()),
            ];
            assert_eq!(chosen(&compiled(&[web()], &slices)), expected);
        }
    }
}

#[test]
fn the_older_service_keeps_a_contested_frontend() {
    let ports = json!([{"port": 80}, {"name": "https", "port": 443}]);
    let old = service(
        "z-old",
        "2024-01-01T00:00:00Z",
        "10.96.0.1",
        json!([{"port": 80}]),
    );
    let new = service("a-new", "2024-01-02T00:00:00Z", "10.96.0.1", ports);
    for services in [[old.clone(), new.clone()], [new, old]] {
        let compiled = compiled(&services, &[]);
        let names: Vec<String> = compiled
            .desired
            .v4
            .services
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["default/a-new:https", "default/z-old"]);
        let skipped: Vec<String> = compiled.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(
            skipped,
            ["Service default/a-new: spec.ports[0]: 10.96.0.1:80/TCP belongs to default/z-old"]
        );
    }
}

#[test]
fn two_ports_of_one_service_cannot_share_a_frontend() {
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]);
    let compiled = compiled(
        &[service("web", "2024-01-01T00:00:00Z", "10.96.0.1", ports)],
        &[],
    );
    assert_eq!(compiled.desired.v4.services.len(), 1);
    assert_eq!(compiled.skipped[0].field, "spec.ports[1]");
}

#[test]
fn families_fall_back_on_their_own() {
    let mut dual = web();
    dual["spec"]["clusterIPs"] = json!(["10.96.0.1", "fd00::1"]);
    let leaving = json!([{"addresses": ["fd00::2"],
        "conditions": {"ready": false, "serving": true, "terminating": true}}]);
    let mut v6 = slice("v6", "web", http(8080), leaving);
    v6["addressType"] = json!("IPv6");
    let v4 = slice(
        "v4",
        "web",
        http(8080),
        json!([{"addresses": ["10.0.0.2"]}]),
    );
    let compiled = compiled(&[dual], &[v4, v6]);
    assert_eq!(chosen(&compiled), ["10.0.0.2:8080"]);
    let v6 = compiled.desired.v6.services.values().next().unwrap();
    assert_eq!(shown(&v6.cluster), ["[fd00::2]:8080"]);
}
