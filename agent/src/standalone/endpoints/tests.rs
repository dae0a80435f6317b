#![allow(clippy::needless_pass_by_value, reason = "json! makes values")]

use serde_json::{Value, json};

use super::*;

fn service(spec: Value) -> Service {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": spec,
    }))
    .unwrap()
}

fn web() -> Service {
    service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}))
}

fn pod(name: &str, address: &str, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": "web", "x": "y"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}]},
        "status": {
            "phase": "Running", "podIP": address,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    }))
    .unwrap()
}

/// `address:port ready/serving/terminating`, in one line each.
fn shown(slices: &[EndpointSlice]) -> Vec<String> {
    let line = |slice: &EndpointSlice, endpoint: &Endpoint| {
        let port = slice.ports.as_ref().and_then(|ports| ports.first()?.port);
        let port = port.map_or_else(|| "-".to_owned(), |port| port.to_string());
        let conditions = endpoint.conditions.clone().unwrap();
        let flags = [conditions.ready, conditions.serving, conditions.terminating];
        let flags = flags.map(|flag| if flag == Some(true) { "y" } else { "n" });
        format!("{}:{port} {}", endpoint.addresses[0], flags.concat())
    };
    slices
        .iter()
        .flat_map(|slice| {
            slice
                .endpoints
                .iter()
                .flatten()
                .map(move |e| line(slice, e))
        })
        .collect()
}

#[test]
fn ready_and_unready_pods() {
    let pods = [
        pod("a", "10.0.0.1", true),
        pod("b", "10.0.0.2", false),
        pod("c", "", true),
    ];
    let slices = slices(&web(), &pods);
    assert_eq!(shown(&slices), ["10.0.0.1:8080 yyn", "10.0.0.2:8080 nnn"]);
    let labels = slices[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels[SERVICE_NAME], "web");
    let endpoint = &slices[0].endpoints.as_ref().unwrap()[0];
    assert_eq!(endpoint.node_name.as_deref(), Some("n1"));
}

#[test]
fn only_pods_of_the_selector_and_namespace() {
    let mut other_label = pod("a", "10.0.0.1", true);
    other_label.metadata.labels = None;
    let mut other_namespace = pod("b", "10.0.0.2", true);
    other_namespace.metadata.namespace = Some("default".into());
    let found = slices(&web(), &[other_label, other_namespace]);
    assert!(shown(&found).is_empty());
    assert_eq!(found.len(), 1, "an empty slice");
    let no_selector = service(json!({"ports": [{"port": 80}]}));
    assert!(slices(&no_selector, &[pod("a", "10.0.0.1", true)]).is_empty());
}

#[test]
fn a_pod_that_ends_serves_but_is_not_ready() {
    let mut ending = pod("a", "10.0.0.1", true);
    let now = jiff::Timestamp::UNIX_EPOCH;
    ending.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    let mut over = pod("b", "10.0.0.2", true);
    over.status.as_mut().unwrap().phase = Some("Succeeded".into());
    assert_eq!(
        shown(&slices(&web(), &[ending, over])),
        ["10.0.0.1:8080 nyy"]
    );
}

#[test]
fn not_ready_addresses_are_published_on_demand() {
    let all = service(json!({
        "selector": {"app": "web"}, "ports": [{"port": 80}], "publishNotReadyAddresses": true,
    }));
    assert_eq!(
        shown(&slices(&all, &[pod("a", "10.0.0.1", false)])),
        ["10.0.0.1:80 yyn"]
    );
}

#[test]
fn named_ports_are_looked_up_in_each_pod() {
    let named = service(json!({
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}],
    }));
    let with_port = |name: &str, address: &str, number: i32| {
        let mut pod = pod(name, address, true);
        pod.spec.as_mut().unwrap().containers[0].ports = serde_json::from_value(json!([
            {"name": "http", "protocol": "UDP", "containerPort": 1},
            {"name": "http", "containerPort": number},
        ]))
        .unwrap();
        pod
    };
    let pods = [
        with_port("a", "10.0.0.1", 8080),
        with_port("b", "10.0.0.2", 9090),
        pod("c", "10.0.0.3", true),
    ];
    let found = slices(&named, &pods);
    assert_eq!(found.len(), 3);
    let want = ["10.0.0.3:- yyn", "10.0.0.1:8080 yyn", "10.0.0.2:9090 yyn"];
    assert_eq!(shown(&found), want);
}
