//! `explain` and `status`, with a daemon and without.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::node::{API, Node};
use crate::{fill, service};
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::require_root;

#[path = "explain/altered.rs"]
mod altered;
#[path = "explain/clients.rs"]
mod clients;
#[path = "explain/looked.rs"]
mod looked;
#[path = "explain/refused.rs"]
mod refused;

const FLAGS: [&str; 2] = ["--cluster-cidr", "10.244.0.0/16"];

/// Exit code, what is printed, what is said.
fn told(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

pub(crate) fn explain(node: &Node, mode: &str, words: &[&str]) -> (i32, String, String) {
    explain_beside(node, mode, &FLAGS, words)
}

/// With these flags of the daemon's, for where there is none.
pub(crate) fn explain_beside(
    node: &Node,
    mode: &str,
    flags: &[&str],
    words: &[&str],
) -> (i32, String, String) {
    let mut command = node.command("explain");
    command.arg("--kubeconfig").arg(node.path("kubeconfig"));
    command.args(["--node-name", "a", "--service-proxy", mode]);
    command.args(flags).args(words);
    told(command)
}

pub(crate) fn status(node: &Node) -> (i32, String, Value) {
    let (code, text, _) = told(node.command("status"));
    let mut command = node.command("status");
    command.args(["--output", "json"]);
    (code, text, serde_json::from_str(&told(command).1).unwrap())
}

/// Two endpoints, of which one is not ready, and a second Service that wants the same address.
fn filled(node: &Node) -> FakeApi {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let mut slice = crate::slice("web", "10.244.0.5");
    let unready = json!({
        "addresses": ["10.244.1.7"], "conditions": { "ready": false }, "nodeName": "b",
    });
    slice["endpoints"].as_array_mut().unwrap().push(unready);
    api.apply(SLICES, slice);
    let mut thief = service("thief", "10.96.0.77");
    thief["spec"]["externalIPs"] = json!(["10.96.0.1"]);
    api.apply(SERVICES, thief);
    api
}

#[track_caller]
pub(crate) fn check(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn without_a_daemon_its_file_counts_too() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let file = node.path("config.yaml");
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                mode: iptables\niptables: { masqueradeBit: 5 }\n";
    fs::write(&file, text).unwrap();
    let flags = ["--config", file.to_str().unwrap(), FLAGS[0], FLAGS[1]];
    let daemon = node.start_with("iptables", &flags);
    daemon.wait("the first sync", || status(&node).0 == 0);
    daemon.end(Signal::SIGKILL);
    let ask = |flags: &[&str]| {
        let mut command = node.command("explain");
        command.arg("--kubeconfig").arg(node.path("kubeconfig"));
        command
            .args(["--node-name", "a", "10.96.0.1:80"])
            .args(flags);
        told(command)
    };
    let (code, text, said) = ask(&flags);
    assert_eq!(code, 0, "{text} {said}");
    check(&text, &["0x20/0x20", "--service-proxy=iptables"]);
    // Who leaves it out asks about another node.
    let (code, text, _) = ask(&[FLAGS[0], FLAGS[1], "--service-proxy=iptables"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["wanted ", "0x4000/0x4000", "found "]);
}

#[test]
fn ebpf_answers_with_its_maps() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let daemon = node.start("ebpf");
    daemon.wait("the first sync", || status(&node).0 == 0);
    let mut daemon = Some(daemon);
    for alive in [true, false] {
        if !alive && let Some(daemon) = daemon.take() {
            daemon.end(Signal::SIGKILL);
        }
        let (code, text, said) = explain(&node, "ebpf", &["10.96.0.1:80"]);
        assert_eq!(code, 0, "{text} {said}");
        check(
            &text,
            &[
                "slot 10.96.0.1:80/TCP 0 10.244.0.5:8080",
                "link connect4",
                "note: with eBPF",
            ],
        );
        assert_eq!(text.contains("the daemon does not run"), !alive);
    }
    node.remove_pin("links/connect4");
    let (code, text, _) = explain(&node, "ebpf", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["missing", "link connect4"]);
}
