//! An address to listen at that somebody else has taken.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::require_root;
use serde_json::Value;

use crate::fill;
use crate::node::{API, CONF, HEALTHZ, Node};

#[test]
fn a_taken_address_keeps_nothing_from_working() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let addr: SocketAddr = HEALTHZ.parse().unwrap();
    let taken = node.netns.enter(|| TcpListener::bind(addr)).unwrap();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("iptables");
    daemon.wait_said(&["Cannot listen", HEALTHZ]);
    daemon.wait("the CNI conf", || node.path(CONF).exists());
    drop(taken);
    daemon.wait("/livez", || {
        node.get("/livez").is_ok_and(|(code, _)| code == 200)
    });
}

#[test]
fn an_address_that_is_taken_in_one_family_is_not_listened_at_in_the_other() {
    if !require_root() {
        return;
    }
    for taken in ["0.0.0.0:10256", "[::1]:10256"] {
        let node = Node::new();
        let addr: SocketAddr = taken.parse().unwrap();
        let _taken = node.netns.enter(|| TcpListener::bind(addr)).unwrap();
        let mut command = node.command("run");
        command.arg("--kubeconfig").arg(node.path("kubeconfig"));
        command.args(["--node-name", "a", "--pod-network", "off"]);
        command.args(["--service-proxy", "iptables"]);
        let daemon = node.launch(&mut command);
        daemon.wait_said(&["Cannot listen", "0.0.0.0:10256"]);
    }
}

#[test]
fn a_taken_address_is_the_end_if_the_operator_wants_that() {
    if !require_root() {
        return;
    }
    for (address, reason) in [
        (HEALTHZ, "FailedToStartProxierHealthcheck"),
        ("127.0.0.1:10249", "FailedToStartMetricServer"),
    ] {
        let node = Node::new();
        let addr: SocketAddr = address.parse().unwrap();
        let _taken = node.netns.enter(|| TcpListener::bind(addr)).unwrap();
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        fill(&api);
        let flags = [
            "--cluster-cidr",
            "10.244.0.0/16",
            "--bind-address-hard-fail",
        ];
        let daemon = node.start_with("iptables", &flags);
        daemon.wait("the event", || !failures(&api).is_empty());
        let log = daemon.log_path();
        assert_eq!(daemon.ended().code(), Some(1));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains(&format!("listen on {address}")), "{log}");
        let failures = failures(&api);
        let [event] = &failures[..] else {
            panic!("{failures:?}")
        };
        assert_eq!(event["reason"], reason, "{event}");
        assert_eq!(event["type"], "Warning", "{event}");
        assert_eq!(event["regarding"]["name"], "a", "{event}");
        assert!(event["note"].as_str().unwrap().contains(address), "{event}");
    }
}

/// The events that tell of something that could not be started.
fn failures(api: &FakeApi) -> Vec<Value> {
    let written = api.written();
    let events = written.iter();
    let mut events: Vec<Value> = events
        .map(|body| serde_json::from_str(body).unwrap())
        .collect();
    events.retain(|event| event["reason"].as_str().unwrap().starts_with("FailedTo"));
    events
}
