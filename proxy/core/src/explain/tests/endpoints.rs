//! Endpoints that answer, and why others do not.

use super::*;

#[test]
fn endpoints_say_why_they_are_left_out() {
    let base = || World::new().service("web", nothing);
    let ready = "10.0.1.5 n1 ready";
    for (endpoint, reason) in [
        ("10.0.2.6 n2 unready", "not ready"),
        ("10.0.2.6 n2 gone", "terminating, and does not serve"),
        ("10.0.2.6 n2 leaving", "terminating, while 1 are ready"),
    ] {
        let world = base().slice(&[ready, endpoint], nothing);
        let line = format!("10.0.2.6:8080 on node n2, left out under policy Cluster: {reason}");
        world.check("10.96.0.1:80", None, &[&line]);
    }
    let zones = ["10.0.1.5 n1 ready a", "10.0.2.6 n2 ready b"];
    base().slice(&zones, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "topology hints: for zone a",
            "hints give it to zone b, this node is in a",
        ],
    );
    let renamed = |slice: &mut Value| slice["ports"][0]["name"] = json!("https");
    let world = base().slice(&[ready], renamed);
    world.check(
        "10.96.0.1:80",
        None,
        &["10.0.1.5 on node n1 (this one)", "is named \"http\""],
    );
    let udp = |slice: &mut Value| slice["ports"][0]["protocol"] = json!("UDP");
    base().slice(&["10.0.2.6 n2 ready"], udp).check(
        "10.96.0.1:80",
        None,
        &["10.0.2.6 on node n2, left out"],
    );
    base()
        .slice(&[ready], udp)
        .check("10.96.0.1:80", None, &["its port \"http\" is UDP"]);
    let v6 = |slice: &mut Value| {
        slice["addressType"] = json!("IPv6");
        slice["endpoints"][0]["addresses"] = json!(["fd00::5"]);
    };
    base()
        .slice(&[ready], v6)
        .check("10.96.0.1:80", None, &["IPv6, this address is IPv4"]);
    base().check("10.96.0.1:80", None, &["none in any slice"]);
    let leaving = ["10.0.2.6 n2 leaving", "10.0.2.7 n2 unready"];
    base().slice(&leaving, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "no endpoint is ready, those that terminate answer",
            "10.0.2.6:8080 on node n2, answers",
        ],
    );
}

#[test]
fn what_fits_is_told_once_and_no_fallback_without_need() {
    let fallback = |endpoints: &[&str], target: &str| {
        let world = World::new().service("web", policy("externalTrafficPolicy"));
        let served = world.slice(endpoints, nothing).explain(target, None).served;
        let served = served.unwrap();
        assert_eq!(served.endpoints.len(), endpoints.len());
        served.policies.terminating_fallback
    };
    let (cluster_ip, node_port) = ("10.96.0.1:80", "172.30.0.11:30080");
    let (ready, leaving) = ("10.0.1.5 n1 ready", "10.0.1.6 n1 leaving");
    let none = [""; 0];
    for target in [cluster_ip, node_port] {
        assert_eq!(fallback(&[ready, leaving], target), none);
        assert_eq!(fallback(&["10.0.1.6 n1 unready"], target), none);
        assert_eq!(fallback(&[], target), none);
    }
    assert_eq!(fallback(&[leaving], cluster_ip), ["Cluster"]);
    assert_eq!(fallback(&[leaving], node_port), ["Cluster", "Local"]);
    let elsewhere = "10.0.2.6 n2 ready";
    assert_eq!(fallback(&[elsewhere, leaving], node_port), ["Local"]);
}
