//! Two states of the API and of the flags. Between them Services come and go, of TCP and of UDP,
//! have no endpoint or another one, and remember their clients for another time; pod 5 serves in
//! both.

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
const MOVES: [u8; 2] = [6, 7];
/// The pod that serves a Service of UDP which is there in state 0 alone.
const GOES: u8 = 8;
/// Who answers the flows that are to be forgotten on the way to a state, in both families: the
/// pod that serves no more, and that of the Service which is no more. Nobody answers what is
/// sent to that Service while it is not there, which conntrack takes for its own address.
pub(super) const STALE: [[&str; 4]; 2] = [
    ["10.244.0.7", "fd00:244::7", "10.96.0.6", "fd00:96::6"],
    ["10.244.0.6", "fd00:244::6", "10.244.0.8", "fd00:244::8"],
];

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
        take(api, udp("goes", 6));
    } else {
        take(api, comes());
        put(api, udp("goes", 6), &[GOES]);
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

/// A Service goes, and its pods.
fn take(api: &FakeApi, service: Value) {
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    let protocol = service["spec"]["ports"][0]["protocol"].clone();
    for slice in slices(&name, &protocol, &[]) {
        api.delete(SLICES, slice);
    }
    api.delete(SERVICES, service);
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
