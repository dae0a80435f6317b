//! What the daemon has made stays until `cleanup`, which tells what it has found.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use seaway_testbed::fake_api::{FakeApi, NODES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;
use serde_json::Value;

use crate::node::{API, CONF, Node};
use crate::{fill, node, slice};

#[test]
fn a_late_api_server_is_followed_and_everything_stays_until_cleanup() {
    if !require_root() {
        return;
    }
    for mode in ["iptables", "ebpf"] {
        follow(mode);
    }
}

fn rules_or_objects(mode: &str) -> &'static str {
    match mode {
        "ebpf" => "the BPF objects",
        _ => "the iptables rules",
    }
}

fn follow(mode: &str) {
    let node_a = Node::new();
    let (rules, tables, pins) = (node_a.rules(), node_a.nft(), node_a.pins());
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let daemon = node_a.start(mode);
    daemon.wait_said(&["Cannot watch the API server"]);
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    daemon.wait("the CNI conf", || node_a.path(CONF).exists());
    let conf: Value = serde_json::from_slice(&fs::read(node_a.path(CONF)).unwrap()).unwrap();
    assert_eq!(
        conf["plugins"][0]["ipam"]["ranges"][0]["subnet"],
        "10.244.0.0/24"
    );
    assert_eq!(conf["plugins"][0]["mtu"], 1430);
    // The conf promises a network, so all of it has to be there already.
    assert!(
        node_a.routes().contains("10.244.1.0/24 via 172.30.0.12"),
        "{}",
        node_a.routes()
    );
    assert!(
        node_a.ask("10.96.0.1:80").contains("web"),
        "{}",
        daemon.log()
    );
    assert_eq!(node_a.get("/healthz").unwrap().0, 200);

    api.apply(SLICES, slice("web", "10.244.0.6"));
    api.delete(SLICES, slice("web", "10.244.0.6"));
    daemon.wait("a refused Service", || {
        node_a.ask("10.96.0.1:80").contains("refused")
    });
    api.apply(SLICES, slice("web", "10.244.0.5"));
    daemon.wait("an answering Service", || {
        node_a.ask("10.96.0.1:80").contains("web")
    });
    api.delete(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
    daemon.wait("no route to b", || {
        !node_a.routes().contains("10.244.1.0/24")
    });
    api.apply(NODES, node("c", "172.30.0.13", "10.244.2.0/24"));
    daemon.wait("a route to c", || {
        node_a.routes().contains("10.244.2.0/24 via 172.30.0.13")
    });

    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(node_a.ask("10.96.0.1:80").contains("web"));
    assert!(node_a.routes().contains("10.244.2.0/24"));
    assert!(node_a.path(CONF).exists());
    let said = node_a.cleanup();
    for part in ["the CNI conf", "the pod network", rules_or_objects(mode)] {
        assert!(said.contains(&format!("Removed part=\"{part}\"")), "{said}");
    }
    // The other backend's objects, and what only `install` makes.
    assert_eq!(said.matches("Nothing to remove").count(), 4, "{said}");
    assert_eq!(
        (node_a.rules(), node_a.nft(), node_a.routes().as_str()),
        (rules, tables, "")
    );
    assert_eq!(node_a.pins(), pins);
    assert!(!node_a.path(CONF).exists());
}

/// Exit status and what was said.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

#[test]
fn cleanup_tells_what_it_found() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (code, text) = said(&mut node.command("cleanup"));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("Nothing to remove").count(), 7, "{text}");
    assert!(!text.contains("Removed"), "{text}");
    // Where nobody can look, nobody knows.
    let (code, text) = said(node.command("cleanup").env("PATH", "/nowhere"));
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text.matches("Nothing to remove").count(), 6, "{text}");
    assert!(text.contains("remove the iptables rules: "), "{text}");
}

/// A node with a file in the plugin's place.
fn with_plugin() -> (Node, PathBuf) {
    let node = Node::new();
    let plugin = node.path("plugins/seaway-cni");
    fs::create_dir(node.path("plugins")).unwrap();
    fs::write(&plugin, "plugin").unwrap();
    (node, plugin)
}

/// With the plugin, if nobody needs it.
fn cleanup_of_all(node: &Node) -> (Option<i32>, String) {
    let mut command = node.command("cleanup");
    command.arg("--cni-bin-dir").arg(node.path("plugins"));
    command.arg("--network-manager-dir").arg(node.path("nm"));
    command.arg("--systemd-run-dir").arg(node.path("systemd"));
    said(&mut command)
}

#[test]
fn the_plugin_stays_where_the_conf_cannot_be_removed() {
    if !require_root() {
        return;
    }
    let (node, plugin) = with_plugin();
    // Not even root unlinks a folder; an immutable file takes a file system that knows such.
    fs::create_dir_all(node.path(CONF)).unwrap();
    fs::create_dir(node.path("run")).unwrap();
    let state = node.path("run/pod-network.json");
    fs::write(&state, "{}").unwrap();
    let (code, text) = cleanup_of_all(&node);
    assert_eq!(code, Some(1), "{text}");
    for part in [
        "remove the CNI conf: ",
        "Cannot remove part=\"the CNI plugin\"",
        "05-seaway.conflist tells the runtime to call the CNI plugin",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(plugin.exists() && !state.exists(), "{text}");
    fs::remove_dir(node.path(CONF)).unwrap();
    let (code, text) = cleanup_of_all(&node);
    assert_eq!(code, Some(0), "{text}");
    assert!(!plugin.exists(), "{text}");
}

/// It writes the conf again, perhaps only after cleanup has looked for it.
#[test]
fn the_plugin_stays_while_a_daemon_runs() {
    if !require_root() {
        return;
    }
    let (node, plugin) = with_plugin();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("off");
    let socket = node.path("run/proxy.sock");
    daemon.wait("the conf", || node.path(CONF).exists() && socket.exists());
    let (code, text) = cleanup_of_all(&node);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("A daemon runs"), "{text}");
    assert!(
        text.contains("the CNI conf again") || text.contains("to call the CNI plugin"),
        "{text}"
    );
    assert!(plugin.exists() && socket.exists(), "{text}");
    daemon.wait("the conf again", || node.path(CONF).exists());
    assert_eq!(daemon.terminate().code(), Some(0));
    let (code, text) = cleanup_of_all(&node);
    assert_eq!(code, Some(0), "{text}");
    assert!(!plugin.exists() && !node.path(CONF).exists(), "{text}");
}
