//! One table row per way in which an object can be odd.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::needless_pass_by_value, reason = "rows are written with json!")]

use serde_json::{Value, json};

use super::*;
use crate::skipped::SkipClass;

fn ingest_service(spec: &Value) -> Ingested<ServiceSpec> {
    let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec});
    service(&serde_json::from_value(object).unwrap())
}

fn ingest_slice(slice: &Value) -> Ingested<SliceSpec> {
    let mut object = json!({
        "metadata": {
            "namespace": "default",
            "name": "web-1",
            "labels": {LABEL_SERVICE_NAME: "web"},
        },
        "addressType": "IPv4",
    });
    for (key, value) in slice.as_object().unwrap() {
        object[key] = value.clone();
    }
    endpoint_slice(&serde_json::from_value(object).unwrap())
}

fn messages<T>(ingested: &Ingested<T>) -> Vec<String> {
    ingested.skipped.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check_service(spec: Value, served: &[&str], skipped: &[&str]) {
    let ingested = ingest_service(&spec);
    let shown: Vec<String> = ingested.value.iter().flat_map(frontends).collect();
    assert_eq!(shown, served, "{spec}");
    assert_eq!(messages(&ingested), skipped, "{spec}");
}

fn frontends(spec: &ServiceSpec) -> Vec<String> {
    let pairs = spec
        .ports
        .iter()
        .flat_map(|p| spec.cluster_ips.iter().map(move |ip| (p, ip)));
    pairs
        .map(|(p, ip)| format!("{} {ip} {}/{}", p.name, p.port, p.protocol))
        .collect()
}

#[test]
fn services() {
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    check_service(
        json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": http}),
        &["http 10.96.0.1 80/TCP", "http fd00::1 80/TCP"],
        &[],
    );
    // Without clusterIPs (old objects), without a protocol, with leading zeros.
    check_service(
        json!({"clusterIP": "172.30.0.041", "ports": [{"port": 53}]}),
        &[" 172.30.0.41 53/TCP"],
        &[],
    );
    check_service(
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": http}),
        &[],
        &["Service default/web: spec.clusterIP: headless, no address to serve"],
    );
    check_service(
        json!({"clusterIP": "", "ports": http}),
        &[],
        &["Service default/web: spec.clusterIP: no cluster IP allocated"],
    );
    check_service(
        json!({"type": "ExternalName", "clusterIP": "10.96.0.1", "ports": http}),
        &[],
        &["Service default/web: spec.type: ExternalName is served by DNS alone"],
    );
}

#[test]
fn malformed_services_lose_only_what_is_malformed() {
    check_service(
        json!({"clusterIPs": ["10.96.0.300", "10.96.0.2"], "ports": [{"port": 80}]}),
        &[" 10.96.0.2 80/TCP"],
        &[r#"Service default/web: spec.clusterIPs[0]: "10.96.0.300" is not an IP address"#],
    );
    check_service(
        json!({"clusterIP": "10.96.0.2", "ports": [
            {"name": "zero", "port": 0},
            {"name": "big", "port": 65536},
            {"name": "odd", "port": 1, "protocol": "tcp"},
            {"name": "sctp", "port": 2, "protocol": "SCTP"},
            {"name": "good", "port": 65535},
            {"name": "good", "port": 3},
        ]}),
        &["good 10.96.0.2 65535/TCP"],
        &[
            "Service default/web: spec.ports[0].port: 0 is not a port number (1-65535)",
            "Service default/web: spec.ports[1].port: 65536 is not a port number (1-65535)",
            r#"Service default/web: spec.ports[2].protocol: "tcp" is none of TCP, UDP and SCTP"#,
            "Service default/web: spec.ports[3].protocol: SCTP is not supported yet",
            r#"Service default/web: spec.ports[5].name: another port of the Service is named "good" too"#,
        ],
    );
    check_service(
        json!({"clusterIP": "127.0.0.1", "ports": [{"port": 80}]}),
        &[],
        &["Service default/web: spec.clusterIP: 127.0.0.1 is a loopback address"],
    );
    for bad in [
        "10.96.0",
        "10.96.0.1.2",
        "10.96..1",
        "+1.2.3.4",
        "1.2.3.4 ",
        "web",
        "1.2.3.-4",
    ] {
        let ingested = ingest_service(&json!({"clusterIP": bad, "ports": [{"port": 80}]}));
        assert_eq!(ingested.value, None, "{bad}");
        assert_eq!(
            ingested.skipped[0].reason.class(),
            SkipClass::Malformed,
            "{bad}"
        );
    }
}

#[test]
fn unsupported_wishes_are_told_and_the_cluster_ip_works() {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["1.2.3.4"],
        "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local",
        "ports": [{"port": 80, "nodePort": 30080}],
    });
    let ingested = ingest_service(&spec);
    assert!(ingested.value.is_some());
    assert_eq!(ingested.skipped.len(), 5);
    assert!(
        ingested
            .skipped
            .iter()
            .all(|s| s.reason.class() == SkipClass::Unsupported)
    );
}

#[test]
fn another_proxys_service() {
    for name in ["kube-router", ""] {
        let object = json!({
            "metadata": {"namespace": "default", "name": "web",
                         "labels": {LABEL_SERVICE_PROXY_NAME: name}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
        });
        let ingested = service(&serde_json::from_value(object).unwrap());
        assert_eq!(ingested.value, None);
        let reason = SkipReason::OtherProxy {
            name: name.to_owned(),
        };
        assert_eq!(ingested.skipped[0].reason, reason);
    }
}

#[test]
fn objects_with_next_to_nothing_in_them() {
    assert_eq!(
        messages(&service(&k8s_openapi::api::core::v1::Service::default())),
        ["Service /: metadata.name: missing"]
    );
    let label = "EndpointSlice /: metadata.labels[kubernetes.io/service-name]: names no Service";
    assert_eq!(
        messages(&endpoint_slice(
            &k8s_openapi::api::discovery::v1::EndpointSlice::default()
        )),
        [label]
    );
}

#[track_caller]
fn check_slice(slice: Value, served: &[&str], skipped: &[&str]) {
    let ingested = ingest_slice(&slice);
    let shown: Vec<String> = ingested.value.iter().flat_map(slice_content).collect();
    assert_eq!(shown, served, "{slice}");
    assert_eq!(messages(&ingested), skipped, "{slice}");
}

fn slice_content(spec: &SliceSpec) -> Vec<String> {
    let ports = spec
        .ports
        .iter()
        .map(|p| format!("{:?} {}/{}", p.name, p.port, p.protocol));
    let endpoints = spec.endpoints.iter().map(|e| {
        let Conditions {
            ready,
            serving,
            terminating,
        } = e.conditions;
        let node = e.node_name.as_deref().unwrap_or("-");
        format!("{} on {node} {ready} {serving} {terminating}", e.addr)
    });
    ports.chain(endpoints).collect()
}

#[test]
fn slices() {
    check_slice(
        json!({
            "ports": [{"name": "", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            "endpoints": [
                {"addresses": ["10.0.0.1", "10.0.0.2"], "nodeName": "n1"},
                {"addresses": ["10.0.0.3"],
                 "conditions": {"ready": false, "serving": true, "terminating": true}},
            ],
        }),
        &[
            r#""" 8080/TCP"#,
            r#""dns" 53/UDP"#,
            "10.0.0.1 on n1 true true false",
            "10.0.0.3 on - false true true",
        ],
        &[],
    );
}

#[test]
fn malformed_slices_lose_only_what_is_malformed() {
    check_slice(
        json!({
            "ports": [{"port": 1}, {"name": "none"}, {"name": "zero", "port": 0},
                      {"name": "odd", "port": 1, "protocol": "QUIC"}, {"name": "ok", "port": 2}],
            "endpoints": [
                {"addresses": []}, {"addresses": ["fd00::1"]}, {"addresses": ["nonsense"]},
                {"addresses": ["169.254.0.1"]}, {"addresses": ["224.0.0.1"]},
                {"addresses": ["0.0.0.0"]}, {"addresses": ["10.0.0.1"]},
            ],
        }),
        &[r#""ok" 2/TCP"#, "10.0.0.1 on - true true false"],
        &[
            "EndpointSlice default/web-1: ports[0].name: missing",
            "EndpointSlice default/web-1: ports[1].port: missing",
            "EndpointSlice default/web-1: ports[2].port: 0 is not a port number (1-65535)",
            r#"EndpointSlice default/web-1: ports[3].protocol: "QUIC" is none of TCP, UDP and SCTP"#,
            "EndpointSlice default/web-1: endpoints[0].addresses: missing",
            "EndpointSlice default/web-1: endpoints[1].addresses: fd00::1 is not an IPv4 address",
            r#"EndpointSlice default/web-1: endpoints[2].addresses: "nonsense" is not an IP address"#,
            "EndpointSlice default/web-1: endpoints[3].addresses: 169.254.0.1 is a link-local address",
            "EndpointSlice default/web-1: endpoints[4].addresses: 224.0.0.1 is a multicast address",
            "EndpointSlice default/web-1: endpoints[5].addresses: 0.0.0.0 is a unspecified address",
        ],
    );
}

#[test]
fn slices_that_are_not_for_us() {
    let labels = |labels: Value| json!({"metadata": {"name": "s", "labels": labels}});
    let headless = labels(json!({LABEL_SERVICE_NAME: "web", LABEL_HEADLESS: ""}));
    let cases = [
        (headless, SkipReason::HeadlessSlice),
        (labels(json!({})), SkipReason::NoService),
        (
            labels(json!({LABEL_SERVICE_NAME: ""})),
            SkipReason::NoService,
        ),
        (json!({"addressType": "FQDN"}), SkipReason::Fqdn),
        (
            json!({"addressType": "IPX"}),
            SkipReason::UnknownAddressType {
                value: "IPX".to_owned(),
            },
        ),
    ];
    for (slice, reason) in cases {
        let ingested = ingest_slice(&slice);
        assert_eq!(ingested.value, None, "{slice}");
        assert_eq!(ingested.skipped[0].reason, reason, "{slice}");
    }
}
