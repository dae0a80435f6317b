//! What users of other service proxies have reported, as histories of objects.
//! `docs/cases-bugs.tsv` says which report is held where.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::needless_pass_by_value,
    reason = "objects are written with json!"
)]

use seaway_proxy_core::desired::{Family, FrontendKind, Protocol, ServicePort};
use seaway_proxy_core::flows::{Client, Flow, Given};
use seaway_proxy_core::interpret::{Outcome, Seen, interpret};
use seaway_proxy_core::{Compiled, Model, Node, ObjectKey, compile};
use serde_json::{Value, json};

fn key() -> ObjectKey {
    ObjectKey::new("default", "web")
}

/// A Service `default/web` with this spec.
fn apply(model: &mut Model, spec: Value) {
    let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec});
    model.apply_service(&serde_json::from_value(object).unwrap());
}

/// A slice of it, with one port `NAME` at 8080 and endpoints on node `n1`.
fn apply_slice(model: &mut Model, name: &str, port: &str, addresses: &[&str]) {
    let endpoint = |address| json!({"addresses": [address], "nodeName": "n1"});
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    let object = json!({
        "metadata": {"namespace": "default", "name": name,
                     "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": port, "port": 8080}], "endpoints": endpoints,
    });
    model.apply_slice(&serde_json::from_value(object).unwrap());
}

fn compiled(model: &Model) -> Compiled {
    compile(model, &Node::named("n1"))
}

/// Its ports in IPv4, each as `FRONTEND… -> ENDPOINT…`.
fn shown(model: &Model) -> Vec<String> {
    let show = |port: &ServicePort| {
        let frontends: Vec<String> = port.frontends.iter().map(ToString::to_string).collect();
        let endpoints = port.cluster.iter().map(|e| e.addr.ip().to_string());
        let endpoints: Vec<String> = endpoints.collect();
        format!("{} -> {}", frontends.join(" "), endpoints.join(" "))
    };
    compiled(model)
        .desired
        .v4
        .services
        .values()
        .map(show)
        .collect()
}

#[test]
fn o1_an_external_name_becomes_a_cluster_ip_without_any_event_of_a_slice() {
    let mut model = Model::new();
    let ports = json!([{"name": "http", "port": 80}]);
    let external = json!({"type": "ExternalName", "externalName": "example.com",
                          "clusterIP": "10.96.0.1", "ports": ports});
    let cluster_ip = json!({"clusterIP": "10.96.0.1", "ports": ports});
    apply_slice(&mut model, "s", "http", &["10.0.0.1"]);
    for _ in 0..2 {
        apply(&mut model, external.clone());
        assert_eq!(shown(&model), [""; 0]);
        apply(&mut model, json!({"clusterIP": "None", "ports": ports}));
        assert_eq!(shown(&model), [""; 0]);
        apply(&mut model, cluster_ip.clone());
        assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.1"]);
    }
}

#[test]
fn o2_fields_that_a_type_no_longer_has_are_gone() {
    let mut model = Model::new();
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    let object = json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "ports": ports,
                 "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
                 "loadBalancerSourceRanges": ["192.0.2.0/24"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}},
    });
    model.apply_service(&serde_json::from_value(object).unwrap());
    apply_slice(&mut model, "s", "http", &["10.0.0.1"]);
    let before = compiled(&model).desired.v4;
    assert_eq!((before.health_checks.len(), before.services.len()), (1, 1));
    let plain = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]});
    apply(&mut model, plain.clone());
    let mut fresh = Model::new();
    apply(&mut fresh, plain);
    apply_slice(&mut fresh, "s", "http", &["10.0.0.1"]);
    assert_eq!(compiled(&model), compiled(&fresh));
    assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.1"]);
    let after = compiled(&model).desired.v4;
    assert!(after.health_checks.is_empty());
    let port = after.services.into_values().next().unwrap();
    assert_eq!(port.source_ranges, None);
}

#[test]
fn o4_targets_that_are_swapped_are_swapped_at_once() {
    let mut model = Model::new();
    let ports = json!([{"name": "a", "port": 8010}, {"name": "b", "port": 8020}]);
    apply(
        &mut model,
        json!({"clusterIP": "10.96.0.1", "ports": ports}),
    );
    apply_slice(&mut model, "x", "a", &["10.0.0.1"]);
    apply_slice(&mut model, "y", "b", &["10.0.0.2"]);
    let before = [
        "10.96.0.1:8010/TCP -> 10.0.0.1",
        "10.96.0.1:8020/TCP -> 10.0.0.2",
    ];
    assert_eq!(shown(&model), before);
    apply_slice(&mut model, "x", "a", &["10.0.0.2"]);
    apply_slice(&mut model, "y", "b", &["10.0.0.1"]);
    let after = [
        "10.96.0.1:8010/TCP -> 10.0.0.2",
        "10.96.0.1:8020/TCP -> 10.0.0.1",
    ];
    assert_eq!(shown(&model), after);
}

#[test]
fn o5_a_port_that_changes_its_name_number_or_protocol_leaves_nothing_stale() {
    let mut model = Model::new();
    let set = |model: &mut Model, name: &str, port: u16, protocol: &str| {
        let ports = json!([{"name": name, "port": port, "protocol": protocol}]);
        apply(model, json!({"clusterIP": "10.96.0.1", "ports": ports}));
    };
    set(&mut model, "http", 80, "TCP");
    apply_slice(&mut model, "s", "http", &["10.0.0.1"]);
    assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.1"]);
    // Until the slices follow there is nobody, and so a refusal.
    set(&mut model, "web", 80, "TCP");
    assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> "]);
    apply_slice(&mut model, "s", "web", &["10.0.0.1"]);
    assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.1"]);
    set(&mut model, "web", 81, "TCP");
    assert_eq!(shown(&model), ["10.96.0.1:81/TCP -> 10.0.0.1"]);
    set(&mut model, "web", 81, "UDP");
    assert_eq!(shown(&model), ["10.96.0.1:81/UDP -> "]);
    let half = compiled(&model).desired.v4;
    let frontends = half.services.values().flat_map(|port| &port.frontends);
    assert!(frontends.into_iter().all(|f| f.protocol == Protocol::Udp));
}

#[test]
fn o8_an_endpoint_of_two_slices_outlives_one_of_them() {
    let mut model = Model::new();
    let ports = json!([{"name": "http", "port": 80}]);
    apply(
        &mut model,
        json!({"clusterIP": "10.96.0.1", "ports": ports}),
    );
    apply_slice(&mut model, "a", "http", &["10.0.0.1", "10.0.0.2"]);
    apply_slice(&mut model, "b", "http", &["10.0.0.2", "10.0.0.3"]);
    let all = "10.96.0.1:80/TCP -> 10.0.0.1 10.0.0.2 10.0.0.3";
    assert_eq!(shown(&model), [all], "nobody counts twice");
    model.delete_slice(&ObjectKey::new("default", "a"));
    assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.2 10.0.0.3"]);
}

#[test]
fn o17_a_service_that_gets_another_proxys_label_goes_and_comes_back() {
    let mut model = Model::new();
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]});
    apply_slice(&mut model, "s", "http", &["10.0.0.1"]);
    for _ in 0..2 {
        apply(&mut model, spec.clone());
        assert_eq!(shown(&model), ["10.96.0.1:80/TCP -> 10.0.0.1"]);
        let label = json!({"service.kubernetes.io/service-proxy-name": "other"});
        let object = json!({"metadata": {"namespace": "default", "name": "web", "labels": label},
                            "spec": spec});
        model.apply_service(&serde_json::from_value(object).unwrap());
        assert_eq!(shown(&model), [""; 0]);
    }
    model.delete_service(&key());
    assert_eq!(shown(&model), [""; 0]);
}

#[test]
fn s4_a_headless_service_with_external_ips_is_nothing_and_hurts_nobody() {
    let mut model = Model::new();
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    apply(
        &mut model,
        json!({"type": "LoadBalancer", "clusterIP": "None", "externalIPs": ["192.0.2.20"],
               "ports": ports}),
    );
    apply_slice(&mut model, "s", "http", &["10.0.0.1"]);
    let other = json!({
        "metadata": {"namespace": "default", "name": "other"},
        "spec": {"clusterIP": "10.96.0.2", "externalIPs": ["192.0.2.20"],
                 "ports": [{"name": "http", "port": 80}]},
    });
    model.apply_service(&serde_json::from_value(other).unwrap());
    let half = compiled(&model).desired.v4;
    assert_eq!(half.services.len(), 1);
    let (name, port) = half.services.first_key_value().unwrap();
    assert_eq!(name.to_string(), "default/other:http");
    let kinds: Vec<FrontendKind> = port.frontends.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FrontendKind::ClusterIp, FrontendKind::ExternalIp]);
}

#[test]
fn t10_an_endpoint_that_moves_to_and_fro_ends_where_it_is() {
    let mut model = Model::new();
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    apply(
        &mut model,
        json!({"type": "NodePort", "clusterIP": "10.96.0.1", "ports": ports,
               "externalTrafficPolicy": "Local"}),
    );
    let mut here = |node: &str| {
        let object = json!({
            "metadata": {"namespace": "default", "name": "s",
                         "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": node}],
        });
        model.apply_slice(&serde_json::from_value(object).unwrap());
        let half = compiled(&model).desired.v4;
        half.services.values().next().unwrap().local.len()
    };
    let moved: Vec<usize> = ["n1", "n2", "n1", "n2"].map(&mut here).into();
    assert_eq!(moved, [1, 0, 1, 0]);
}

/// No node is named for the endpoint, or one that does not exist under this name:
/// it is nobody's local endpoint, and still must not meet itself unmasqueraded.
#[test]
fn h2_an_endpoint_without_a_node_may_be_its_own_client() {
    let given = Given {
        spec: r#"{"externalTrafficPolicy": "Local"}"#,
        endpoints: "h1",
        node: |_| {},
    };
    let mut state = given.compiled(Family::V4).desired;
    let flow = |from, to| Flow {
        cases: &[],
        family: Family::V4,
        given,
        from,
        to,
        protocol: Protocol::Tcp,
        expect: "",
    };
    for port in state.v4.services.values_mut() {
        port.local.clear();
        port.cluster[0].local = false;
        port.unplaced = vec![port.cluster[0].addr.ip()];
    }
    for to in ["172.30.0.41:80", "192.168.0.2:30001", "1.2.3.4:80"] {
        let flow = flow(Client::Endpoint, to);
        let outcome = interpret(&state, &flow.node_addresses(), &flow.packet());
        let Outcome::Answered(answers) = outcome else {
            panic!("{to}: {outcome:?}");
        };
        assert!(answers.values().all(|seen| *seen == Seen::Node), "{to}");
    }

    let mut model = Model::new();
    apply(
        &mut model,
        json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]}),
    );
    let endpoint = |address, node: Value| json!({"addresses": [address], "nodeName": node});
    let object = json!({
        "metadata": {"namespace": "default", "name": "s",
                     "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": [endpoint("10.0.0.1", json!("n1")), endpoint("10.0.0.2", json!("n2")),
                      endpoint("10.0.0.3", Value::Null)],
    });
    model.apply_slice(&serde_json::from_value(object).unwrap());
    let half = compiled(&model).desired.v4;
    let port = half.services.values().next().unwrap();
    let own: Vec<String> = port.own_clients().map(|addr| addr.to_string()).collect();
    assert_eq!(own, ["10.0.0.1", "10.0.0.3"]);
}
