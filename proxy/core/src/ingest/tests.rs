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
        &["sctp 10.96.0.2 2/SCTP", "good 10.96.0.2 65535/TCP"],
        &[
            "Service default/web: spec.ports[0].port: 0 is not a port number (1-65535)",
            "Service default/web: spec.ports[1].port: 65536 is not a port number (1-65535)",
            r#"Service default/web: spec.ports[2].protocol: "tcp" is none of TCP, UDP and SCTP"#,
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

fn one(spec: &Value) -> ServiceSpec {
    ingest_service(spec).value.unwrap()
}

#[track_caller]
fn check_skips(spec: &Value, expected: &[&str]) {
    assert_eq!(messages(&ingest_service(spec)), expected, "{spec}");
}

/// A load balancer's Service at 10.96.0.1 with `extra` fields.
fn balanced(extra: Value) -> Value {
    let mut spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1",
                          "healthCheckNodePort": 32000, "ports": [{"port": 80, "nodePort": 30080}]});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn policies_mean_something_where_there_is_external_traffic() {
    use TrafficPolicy::{Cluster, Local};
    let local = json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"});
    let spec = one(&balanced(local.clone()));
    assert_eq!((spec.internal, spec.external), (Local, Local));
    assert_eq!(spec.health_check_node_port, Some(32000));
    assert_eq!(spec.ports[0].node_port, Some(30080));

    // Cases 95 and 96: type ClusterIP has a policy by its external IPs alone.
    let mut cluster_ip = balanced(local);
    cluster_ip["type"] = json!("ClusterIP");
    assert_eq!(one(&cluster_ip).external, Cluster);
    cluster_ip["externalIPs"] = json!(["192.0.2.1"]);
    assert_eq!(one(&cluster_ip).external, Local);
    assert_eq!(one(&cluster_ip).health_check_node_port, None);

    // Case 118.
    let plain = one(&balanced(json!({})));
    assert_eq!((plain.internal, plain.external), (Cluster, Cluster));
    assert_eq!(plain.health_check_node_port, None, "nobody asks");
    check_skips(
        &balanced(json!({"externalTrafficPolicy": "Near", "internalTrafficPolicy": ""})),
        &[
            r#"Service default/web: spec.externalTrafficPolicy: "Near" is none of Cluster and Local"#,
        ],
    );
    check_skips(
        &balanced(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 0})),
        &["Service default/web: spec.healthCheckNodePort: 0 is not a port number (1-65535)"],
    );
}

#[test]
fn external_addresses() {
    // Cases 97 to 99, 31, 252.
    let object = json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": balanced(json!({"externalIPs": ["192.0.2.007", "fd00::7", "127.0.0.1", "x"]})),
        "status": {"loadBalancer": {"ingress": [
            {"ip": "1.2.3.4"}, {"ip": "5.6.7.8", "ipMode": "VIP"},
            {"ip": "9.9.9.9", "ipMode": "Proxy"}, {"hostname": "lb.example"},
            {"ip": "fd00::1", "ipMode": "VIP"}, {"ip": "1.1.1.1", "ipMode": "Odd"},
        ]}},
    });
    let ingested = service(&serde_json::from_value(object).unwrap());
    assert_eq!(
        messages(&ingested),
        [
            "Service default/web: status.loadBalancer.ingress[2].ipMode: ipMode Proxy, the load balancer wants to see the traffic",
            "Service default/web: status.loadBalancer.ingress[3].ip: a name and no address",
            "Service default/web: status.loadBalancer.ingress[4].ip: the Service has no IPv6 cluster IP, so fd00::1 is not served",
            r#"Service default/web: status.loadBalancer.ingress[5].ipMode: "Odd" is none of VIP and Proxy"#,
            "Service default/web: spec.externalIPs[1]: the Service has no IPv6 cluster IP, so fd00::7 is not served",
            "Service default/web: spec.externalIPs[2]: 127.0.0.1 is a loopback address",
            r#"Service default/web: spec.externalIPs[3]: "x" is not an IP address"#,
        ]
    );
    let spec = ingested.value.unwrap();
    let text = |addrs: &[IpAddr]| addrs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(&spec.load_balancer_ips), ["1.2.3.4", "5.6.7.8"]);
    assert_eq!(text(&spec.external_ips), ["192.0.2.7"]);
}

#[test]
fn source_ranges() {
    let ranges = |list: Value| {
        let spec = one(&balanced(json!({"loadBalancerSourceRanges": list})));
        let shown = |ranges: Vec<IpNetwork>| ranges.iter().map(ToString::to_string).collect();
        spec.source_ranges.map(shown)
    };
    let some = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(ranges(json!([])), None);
    // Cases 31 and 133.
    assert_eq!(
        ranges(json!([
            " 203.0.113.129/025 ",
            "192.168.0.0/24",
            "nonsense",
            "10.0.0.1",
            "1.2.3.4/33"
        ])),
        some(&["192.168.0.0/24", "203.0.113.128/25"])
    );
    // Cases 128 and 135.
    assert_eq!(ranges(json!(["10.0.0.0/8", "0.0.0.0/0"])), None);
    assert_eq!(ranges(json!(["10.0.0.0/8", "::/0"])), None);
    assert_eq!(
        ranges(json!(["0.0.0.0/1", "128.0.0.0/1"])),
        some(&["0.0.0.0/1", "128.0.0.0/1"])
    );
    assert_eq!(
        ranges(json!(["everybody"])),
        some(&[]),
        "a door that does not fit stays closed"
    );
}

#[test]
fn session_affinity() {
    let affinity = |extra: Value| one(&balanced(extra)).affinity.map(|t| t.as_secs());
    let config = |seconds: i32| {
        json!({"sessionAffinity": "ClientIP",
               "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}})
    };
    assert_eq!(affinity(json!({"sessionAffinity": "None"})), None);
    assert_eq!(
        affinity(json!({"sessionAffinity": "ClientIP"})),
        Some(10_800)
    );
    assert_eq!(affinity(config(125)), Some(125));
    for odd in [0, -1, 86_401] {
        assert_eq!(affinity(config(odd)), Some(10_800));
        assert_eq!(ingest_service(&balanced(config(odd))).skipped.len(), 1);
    }
    assert_eq!(affinity(json!({"sessionAffinity": "Cookie"})), None);
}

#[test]
fn either_field_of_cluster_ips_says_that_there_is_none() {
    let reason = |spec: Value| {
        let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec});
        let ingested = service(&serde_json::from_value(object).unwrap());
        assert_eq!(ingested.value, None);
        ingested.skipped[0].reason.clone()
    };
    let ports = json!([{"port": 80}]);
    for (spec, expect) in [
        (json!({"ports": ports}), SkipReason::NoClusterIp),
        (
            json!({"clusterIP": "", "ports": ports}),
            SkipReason::NoClusterIp,
        ),
        (
            json!({"clusterIPs": [""], "ports": ports}),
            SkipReason::NoClusterIp,
        ),
        (
            json!({"clusterIPs": [], "ports": ports}),
            SkipReason::NoClusterIp,
        ),
        (
            json!({"clusterIP": "None", "ports": ports}),
            SkipReason::Headless,
        ),
        (
            json!({"clusterIPs": ["None"], "ports": ports}),
            SkipReason::Headless,
        ),
    ] {
        assert_eq!(reason(spec.clone()), expect, "{spec}");
    }
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
