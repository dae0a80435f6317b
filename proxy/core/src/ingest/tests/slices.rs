//! EndpointSlices, and what of them is of use.

use super::*;

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
