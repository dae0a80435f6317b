//! What a Service says besides: policies, external addresses, source ranges, affinity.

use super::*;

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
