//! This node's own object, and what of it the rounds are made of.

use super::*;

/// An endpoint for the clients of each zone.
fn zoned_slice(service: &str) -> EndpointSlice {
    let endpoint = |(addr, zone)| {
        json!({
            "addresses": [addr], "conditions": { "ready": true },
            "hints": { "forZones": [{ "name": zone }] },
        })
    };
    let endpoints = [("10.244.0.5", "z1"), ("10.244.0.6", "z2")].map(endpoint);
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": format!("{service}-x"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
    }))
    .unwrap()
}

#[tokio::test]
async fn the_first_round_knows_the_node_and_later_ones_follow_it() {
    let mut bench = Bench::without_node(0, PATIENCE, PATIENCE, DetectLocal::NodeCidrs);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitApply(zoned_slice("web")));
    slices(Event::InitDone);
    // What is wanted of the Node is its podCIDRs, and they are not there yet.
    bench.feed.node_seen(own_node("z1", &[]));
    let early = timeout(Duration::from_millis(100), bench.synced.changed()).await;
    assert!(early.is_err(), "synced before the node was known");
    assert_eq!(*bench.glass.touched.borrow(), 0, "the kernel was touched");
    bench.feed.node_seen(own_node("z1", &["10.244.0.0/24"]));
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 | from outside 10.244.0.5:8080 masq (default/web)\n")
        .await;
    bench.feed.node_seen(own_node("z2", &["10.244.0.0/24"]));
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.6:8080 | from outside 10.244.0.6:8080 masq (default/web)\n")
        .await;
    bench.end().await;
}

#[tokio::test]
async fn a_node_that_does_not_come_is_not_waited_for_for_ever() {
    let patience = Duration::from_millis(20);
    let bench = Bench::without_node(0, PATIENCE, patience, DetectLocal::NodeCidrs);
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench
        .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
        .await;
    bench.end().await;
}

#[test]
fn the_node_is_what_the_object_and_the_operator_say() {
    use seaway_proxy_core::node::{Detect, NodePorts};

    let mut config = ServicesConfig {
        detect: DetectLocal::NodeCidrs,
        node_ports: NodePorts::Primary,
        localhost_node_ports: false,
        masquerade_all: true,
        external_ips: false,
        ..ServicesConfig::default()
    };
    let own = own_node("z1", &["10.244.0.0/24"]);
    let got = node::of("a", Some(own.clone()), &config);
    assert_eq!((got.name.as_str(), got.zone.as_deref()), ("a", Some("z1")));
    assert_eq!(got.addresses, own.addresses);
    assert_eq!(got.detect, Detect::Networks(own.pod_cidrs.clone()));
    assert_eq!(got.node_ports, NodePorts::Primary);
    assert!(got.masquerade_all && !got.localhost_node_ports && !got.external_ips);
    for (detect, expect) in [
        (
            DetectLocal::ClusterCidrs(own.pod_cidrs.clone()),
            Detect::Networks(own.pod_cidrs.clone()),
        ),
        (
            DetectLocal::Interface("br0".to_owned()),
            Detect::Interface("br0".to_owned()),
        ),
        (
            DetectLocal::InterfacePrefix("sw".to_owned()),
            Detect::InterfacePrefix("sw".to_owned()),
        ),
    ] {
        config.detect = detect;
        assert_eq!(node::of("a", Some(own.clone()), &config).detect, expect);
    }
    // The operator's word goes before the object's.
    for (address, expect) in [
        ("192.0.2.7", vec!["192.0.2.7"]),
        ("fd00::7", vec!["fd00::7", "172.30.0.11"]),
    ] {
        config.node_address = Some(address.parse().unwrap());
        let got = node::of("a", Some(own.clone()), &config).addresses;
        let got: Vec<String> = got.iter().map(ToString::to_string).collect();
        assert_eq!(got, expect);
    }
}
