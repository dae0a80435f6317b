//! What becomes of clients from here and there, and of those whom nobody serves.

use seaway_testbed::fake_api::{SERVICES, SLICES};
use seaway_testbed::require_root;
use serde_json::json;

use super::{check, explain, filled, status};
use crate::node::Node;
use crate::service;

#[test]
fn clients_are_told_apart_and_nobody_is_served_elsewhere() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = filled(&node);
    let mut local = service("local", "10.96.0.3");
    local["spec"]["type"] = json!("NodePort");
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    local["spec"]["ports"][0]["nodePort"] = json!(30080);
    api.apply(SERVICES, local);
    let mut elsewhere = crate::slice("local", "10.244.1.8");
    elsewhere["endpoints"][0]["nodeName"] = json!("b");
    api.apply(SLICES, elsewhere);
    let mut vip = service("vip", "10.96.0.4");
    vip["spec"]["type"] = json!("LoadBalancer");
    vip["spec"]["sessionAffinity"] = json!("ClientIP");
    vip["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    vip["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } });
    api.apply(SERVICES, vip);
    api.apply(SLICES, crate::slice("vip", "10.244.0.6"));
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || status(&node).0 == 0);
    for (from, expect) in [
        (
            "10.244.0.5",
            "this node itself: answered by 10.244.1.8:8080, masqueraded",
        ),
        (
            "10.244.0.99",
            "a pod of this node: answered by 10.244.1.8:8080\n",
        ),
        (
            "172.30.0.11",
            "this node itself: answered by 10.244.1.8:8080, masqueraded",
        ),
        (
            "10.244.1.8",
            "a pod of another node: dropped: no endpoint on this node",
        ),
        (
            "192.0.2.1",
            "a client from outside: dropped: no endpoint on this node",
        ),
    ] {
        let (code, text, said) = explain(&node, "iptables", &["172.30.0.11:30080", "--from", from]);
        assert_eq!(code, 0, "{from}: {text} {said}");
        check(
            &text,
            &[
                "NodePort of Service default/local",
                &format!("{from}, {expect}"),
            ],
        );
        check(&text, &["left out under policy Local: not on this node"]);
    }
    let (code, text, said) = explain(&node, "iptables", &["192.0.2.9:80", "--from", "8.8.8.8"]);
    assert_eq!(code, 0, "{text} {said}");
    check(
        &text,
        &[
            "load balancer IP of Service default/vip",
            "loadBalancerSourceRanges: 192.0.2.0/24",
            "sessionAffinity: ClientIP, 10800 s",
            "8.8.8.8, a client from outside: dropped: not within spec.loadBalancerSourceRanges",
            "-A SEAWAY-FW-",
            "--add-set SEAWAY-4-",
            "set SEAWAY-4-",
        ],
    );
    let (code, text, said) = explain(&node, "iptables", &["[fd00:96::9]:80/UDP"]);
    assert_eq!(code, 0, "{text} {said}");
    check(&text, &["no Service port is served here", "-A PREROUTING"]);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:81"]);
    assert_eq!(code, 0, "{text}");
    check(
        &text,
        &[
            "no Service port is served here",
            "note: 10.96.0.1:80/TCP is default/web's",
        ],
    );
    let (code, text, value) = status(&node);
    assert_eq!(code, 0, "{text}");
    check(
        &text,
        &["node a: in sync", "pending changes: 0", "CNI conf there"],
    );
    assert_eq!(value["serviceProxy"]["services"], 4);
    assert_eq!(value["serviceProxy"]["skipped"], 1);
    assert_eq!(value["podNetwork"]["inSync"], true);
}
