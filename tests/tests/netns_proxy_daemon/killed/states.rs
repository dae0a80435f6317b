//! Two states of the API and of the flags. Between them Services come and go, have no endpoint
//! or another one, and remember their clients for another time; pod 5 serves in both.

use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use serde_json::{Value, json};

use crate::dual;

/// Addresses that pod 5 serves in both, with and without a memory of clients.
pub(super) const STAYS: [&str; 4] = [
    "10.96.0.1:80",
    "10.96.0.11:80",
    "[fd00:96::1]:80",
    "[fd00:96::11]:80",
];
/// Services that remember their clients. Each has a set in each family, which is another one
/// in the other state.
pub(super) const STICKY: usize = 14;
const TIMEOUTS: [u32; 2] = [10_800, 7_200];
/// The pod that serves the Service of UDP whose flows have to follow it.
pub(super) const MOVES: [u8; 2] = [6, 7];

/// NodePorts on 127.0.0.1 need a sysctl, which is a write of the daemon's own.
pub(super) fn flags(state: usize) -> &'static [&'static str] {
    match state {
        0 => &["--iptables-localhost-nodeports=false"],
        _ => &[],
    }
}

/// Makes the API say what it says in that state.
pub(super) fn change(api: &FakeApi, state: usize) {
    put(api, service("web", 1), [&[5, 6][..], &[5]][state]);
    put(api, service("loses", 2), [&[5][..], &[]][state]);
    if state == 1 {
        put(api, comes(), &[5, 6]);
    } else {
        for slice in slices("comes", &json!("TCP"), &[]) {
            api.delete(SLICES, slice);
        }
        api.delete(SERVICES, comes());
    }
    put(api, udp("stays", 4), &[5]);
    put(api, udp("moves", 5), &[MOVES[state]]);
    for n in 0..STICKY {
        put(api, sticky(n, TIMEOUTS[state]), &[5]);
    }
}

fn service(name: &str, n: usize) -> Value {
    let ips = [format!("10.96.0.{n}"), format!("fd00:96::{n}")];
    dual::service(name, [&ips[0], &ips[1]])
}

fn comes() -> Value {
    let mut service = service("comes", 3);
    service["spec"]["type"] = json!("NodePort");
    service["spec"]["ports"][0]["nodePort"] = json!(30080);
    service
}

fn udp(name: &str, n: usize) -> Value {
    let mut service = service(name, n);
    service["spec"]["ports"][0]["protocol"] = json!("UDP");
    service
}

fn sticky(n: usize, timeout: u32) -> Value {
    let mut service = service(&format!("sticky{n}"), 11 + n);
    service["spec"]["sessionAffinity"] = json!("ClientIP");
    service["spec"]["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": timeout } });
    service
}

/// A Service and the pods that serve it.
fn put(api: &FakeApi, service: Value, pods: &[u8]) {
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    let protocol = service["spec"]["ports"][0]["protocol"].clone();
    api.apply(SERVICES, service);
    for slice in slices(&name, &protocol, pods) {
        api.apply(SLICES, slice);
    }
}

fn slices(service: &str, protocol: &Value, pods: &[u8]) -> [Value; 2] {
    let slices = dual::slices(service, |prefix| {
        let endpoint = |pod: &u8| {
            let address = format!("{prefix}{pod}");
            json!({ "addresses": [address], "conditions": { "ready": true }, "nodeName": "a" })
        };
        pods.iter().map(endpoint).collect()
    });
    slices.map(|mut slice| {
        slice["ports"][0]["protocol"] = protocol.clone();
        slice
    })
}
