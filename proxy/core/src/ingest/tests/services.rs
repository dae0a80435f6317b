//! Services: whether they are served, by which cluster IPs and ports.

use super::*;
use crate::skipped::SkipClass;

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
