//! Objects made of numbers, which choose among few names and contents, so that they meet,
//! conflict and come back: of IPv4, of IPv6 and of both.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use seaway_proxy_core::Node;
use seaway_proxy_core::desired::Family;
use serde_json::{Value, json};

/// Addresses collide between names, one is malformed, one is headless; leading zeros are let pass.
const CLUSTER_IPS: [[&str; 6]; 2] = [
    [
        "10.96.0.1",
        "10.96.0.2",
        "10.96.0.3",
        "10.96.0.x",
        "None",
        "172.30.0.041",
    ],
    [
        "fd00:96::1",
        "fd00:96::2",
        "fd00:96::3",
        "fd00:96::x",
        "None",
        "FD00:172::0041",
    ],
];
/// The last one is somebody's cluster IP.
const EXTERNAL_IPS: [[&str; 3]; 2] = [
    ["192.0.2.1", "192.0.2.2", "10.96.0.1"],
    ["fd00:192::1", "fd00:192::2", "fd00:96::1"],
];
/// This node has an address in each.
const RANGES: [&str; 2] = ["192.168.0.0/24", "fd00:168::/64"];

/// In zone `a`.
pub(crate) fn node() -> Node {
    let addresses = ["192.168.0.2", "fd00:168::2"];
    Node {
        zone: Some("a".to_owned()),
        addresses: addresses.map(|addr| addr.parse().unwrap()).to_vec(),
        ..Node::named("n1")
    }
}

/// Which of two is the family's.
fn of<T: Copy>(family: Family, pair: [T; 2]) -> T {
    match family {
        Family::V4 => pair[0],
        Family::V6 => pair[1],
    }
}

/// A Service's, the primary one first.
fn families(content: u16) -> &'static [Family] {
    match (content >> 8) % 4 {
        0 => &[Family::V4],
        1 => &[Family::V6],
        2 => &[Family::V4, Family::V6],
        _ => &[Family::V6, Family::V4],
    }
}

/// What of a Service is of these families, if there is anything.
pub(crate) fn service(name: u8, content: u16, only: &[Family]) -> Option<Service> {
    let families = families(content).iter().copied();
    let families: Vec<Family> = families.filter(|family| only.contains(family)).collect();
    let ip = |family: &Family| of(*family, CLUSTER_IPS)[usize::from(content) % 6];
    let ips: Vec<&str> = families.iter().map(ip).collect();
    let first = ips.first()?;
    let created = format!("2024-01-0{}T00:00:00Z", 1 + content % 3);
    let ports = match content % 4 {
        0 => json!([{"port": 80, "nodePort": 30000 + content % 3}]),
        1 => json!([{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]),
        2 => json!([{"name": "a", "port": 0}, {"name": "b", "port": 80}]),
        _ => json!([{"name": "a", "port": 443}]),
    };
    let pick = |shift: u16| usize::from(content >> shift) % 3;
    let external = |shift: u16| -> Vec<&str> {
        let of_each = families.iter();
        of_each
            .map(|family| of(*family, EXTERNAL_IPS)[pick(shift)])
            .collect()
    };
    let ingress: Vec<Value> = external(3).iter().map(|ip| json!({"ip": ip})).collect();
    let ranges = match (content >> 5) % 4 {
        0 => &RANGES[..1],
        2 => &RANGES[1..],
        _ => &[],
    };
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("svc{name}"), "creationTimestamp": created},
        "spec": {
            "type": "LoadBalancer", "clusterIP": first, "ports": ports,
            // Objects of old have the one address alone.
            "clusterIPs": if families == [Family::V4] { json!(null) } else { json!(ips) },
            "externalIPs": external(1),
            "externalTrafficPolicy": if content & 8 == 0 { "Local" } else { "Cluster" },
            "internalTrafficPolicy": if content & 16 == 0 { "Local" } else { "Cluster" },
            "healthCheckNodePort": 32000 + u16::from(name),
            "loadBalancerSourceRanges": ranges,
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    Some(serde_json::from_value(object).unwrap())
}

/// A slice, if it is of these families.
pub(crate) fn slice(name: u8, content: u16, only: &[Family]) -> Option<EndpointSlice> {
    let (family, other) = match content & 256 {
        0 => (Family::V4, Family::V6),
        _ => (Family::V6, Family::V4),
    };
    if !only.contains(&family) {
        return None;
    }
    let ready = content & 1 == 0;
    let endpoints: Vec<Value> = (0..content % 4)
        .map(|i| {
            // One of the other family, now and then, which is left out.
            let odd = i == 0 && content & 512 != 0;
            let pods = of(if odd { other } else { family }, ["10.0.0.", "fd00::"]);
            json!({
                "addresses": [format!("{pods}{}", 1 + (i + content % 5) % 5)],
                "nodeName": format!("n{}", i % 2),
                "hints": if content & 64 == 0 {
                    json!({"forZones": [{"name": if i % 2 == 0 { "a" } else { "b" }}]})
                } else {
                    json!(null)
                },
                "conditions": {"ready": ready, "serving": true, "terminating": content & 2 == 0},
            })
        })
        .collect();
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("slice{name}"),
                     "labels": {"kubernetes.io/service-name": format!("svc{}", content % 4)}},
        "addressType": family.to_string(),
        "ports": [{"name": "", "port": 8080}, {"name": "a", "port": 8080},
                  {"name": "b", "port": 5353, "protocol": "UDP"}],
        "endpoints": endpoints,
    });
    Some(serde_json::from_value(object).unwrap())
}
