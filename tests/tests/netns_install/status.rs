//! STATUS agrees with what the daemon says of the pod network.

use std::fs;

use nix::sys::signal::Signal;
use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::cni::{self, feed, pod_path, text};
use crate::daemon::{API, CONF, Node};
use seaway_testbed::fake_api::{FakeApi, NODES};

/// A Node as an API server has it.
pub(crate) fn node(name: &str, ip: &str, cidr: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": cidr, "podCIDRs": [cidr] },
        "status": { "addresses": [{ "type": "InternalIP", "address": ip }] },
    })
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    text.trim().to_owned()
}

/// Code and details.
fn refusal(node: &cni::Node) -> (u64, String) {
    let error = node.fails("STATUS", "", "");
    let details = error["details"].as_str().unwrap().to_owned();
    (error["code"].as_u64().unwrap(), details)
}

#[test]
fn case_46_a_pod_network_that_does_not_serve_is_50_and_51_with_pods() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (cni::Node::new("10.244.1.0/24"), Netns::new("pod"));
    let state = node.dir.path().join("pod-network.json");
    node.conf["cniVersion"] = json!("1.1.0");
    // A conf written by hand asks for no daemon.
    assert!(node.call("STATUS", "", "").status.success());
    node.conf["podNetworkState"] = json!(state);
    let says = |text: &Value| fs::write(&state, text.to_string()).unwrap();
    for code in [50, 51] {
        if code == 51 {
            node.add("c1", &pod);
        }
        fs::remove_file(&state).ok();
        let (got, why) = refusal(&node);
        assert_eq!(got, code, "{why}");
        assert!(
            why.contains("does not serve") && why.contains("pod-network.json"),
            "{why}"
        );
        fs::write(&state, "{").unwrap();
        assert_eq!(refusal(&node).0, code);
        says(&json!({"bootId": "another", "mode": "direct", "mtu": 1450}));
        let (got, why) = refusal(&node);
        assert_eq!(got, code);
        assert!(why.contains("another boot"), "{why}");
        says(&json!({"bootId": boot_id(), "mode": "direct", "mtu": 1450}));
        assert!(node.call("STATUS", "", "").status.success());
        says(&json!({"bootId": boot_id(), "mode": "vxlan", "mtu": 1450, "device": "seaway.vx"}));
        let (got, why) = refusal(&node);
        assert_eq!(got, code);
        assert!(why.contains("there is no device seaway.vx"), "{why}");
        node.netns.ip("link add seaway.vx type veth peer name far");
        let (got, why) = refusal(&node);
        assert_eq!(got, code);
        assert!(why.contains("device seaway.vx is down"), "{why}");
        node.netns.ip("link set seaway.vx up");
        assert!(node.call("STATUS", "", "").status.success());
        node.netns.ip("link del seaway.vx");
    }
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

/// Runtimes that know no STATUS go on with the conf of the boot before.
#[test]
fn case_46_an_add_is_to_be_tried_again_until_the_daemon_has_served_in_this_boot() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (cni::Node::new("10.244.1.0/24"), Netns::new("pod"));
    let state = node.dir.path().join("pod-network.json");
    node.conf["podNetworkState"] = json!(state);
    let says = |text: &str| fs::write(&state, text).unwrap();
    let state_of = |boot: &str| json!({"bootId": boot, "mode": "direct", "mtu": 1450}).to_string();
    let refused = |node: &cni::Node, why: &str| {
        let error = node.fails("ADD", "c1", pod_path(&pod));
        assert_eq!(error["code"], 11, "{error}");
        let msg = error["msg"].as_str().unwrap();
        let parts = ["since this boot", why, "try again"];
        assert!(parts.iter().all(|part| msg.contains(part)), "{msg}");
        assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
        node.assert_empty();
    };
    refused(&node, "there is no");
    says(&state_of("another"));
    refused(&node, "another boot");
    // The failed ADD's DEL.
    node.del("c1", pod_path(&pod));
    // What else may be wrong with it keeps no pod from starting.
    let no_such_device = json!({"bootId": boot_id(), "device": "seaway.vx"}).to_string();
    for text in ["{", "{}", no_such_device.as_str()] {
        says(text);
        node.add("c1", &pod);
        node.del("c1", pod_path(&pod));
    }

    // Of a pod that is there nobody asks, whatever has become of the state.
    says(&state_of(&boot_id()));
    node.conf["prevResult"] = node.add("c1", &pod);
    fs::remove_file(&state).unwrap();
    let checked = node.call("CHECK", "c1", pod_path(&pod));
    assert!(checked.status.success(), "{}", text(&checked));
    node.conf["prevResult"] = Value::Null;
    node.conf["cniVersion"] = json!("1.1.0");
    node.conf["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let collected = node.call("GC", "", "");
    assert!(collected.status.success(), "{}", text(&collected));
    let records = node.records();
    assert!(
        records.len() == 1 && records[0].ends_with("=c1:eth0"),
        "{records:?}"
    );
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

/// The plugin on the daemon's node, with the conf that the daemon has written.
struct Plugin<'a> {
    host: &'a Node,
    fixture: cni::Node,
    conf: Value,
}

impl<'a> Plugin<'a> {
    fn new(host: &'a Node) -> Self {
        // As libcni does: one plugin of the list, with the list's name and version.
        let list: Value = serde_json::from_slice(&fs::read(host.path(CONF)).unwrap()).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["name"] = list["name"].clone();
        conf["cniVersion"] = json!("1.1.0");
        let fixture = cni::Node::new("10.244.9.0/24");
        Self {
            host,
            fixture,
            conf,
        }
    }

    fn status(&self) -> std::process::Output {
        let mut command = self.host.netns.command(&self.fixture.program);
        let verb = ("CNI_COMMAND", "STATUS");
        command
            .env_clear()
            .envs([verb, ("CNI_PATH", "/opt/cni/bin")]);
        feed(command, &self.conf)
    }

    #[track_caller]
    fn is_ready(&self) {
        let output = self.status();
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// What the daemon writes is what the plugin reads.
#[test]
fn case_46_the_plugin_agrees_with_the_daemon() {
    if !require_root() {
        return;
    }
    let host = Node::new();
    let api = FakeApi::start(&host.netns, API.parse().unwrap(), None);
    api.apply(NODES, node("a", "172.30.0.11", "10.244.0.0/24"));
    let daemon = host.start("off");
    daemon.wait("the conf", || host.path(CONF).exists());
    let plugin = Plugin::new(&host);
    plugin.is_ready();
    // The daemon's end changes nothing; its removal does.
    assert!(daemon.terminate().success());
    plugin.is_ready();
    host.cleanup();
    assert_eq!(cni::failure(&plugin.status())["code"], 50);
}

#[test]
fn case_46_without_the_overlays_device_the_node_is_not_ready() {
    if !require_root() {
        return;
    }
    let host = Node::new();
    let api = FakeApi::start(&host.netns, API.parse().unwrap(), None);
    api.apply(NODES, node("a", "172.30.0.11", "10.244.0.0/24"));
    let flags = ["--cluster-cidr", "10.244.0.0/16", "--pod-routes", "vxlan"];
    let daemon = host.start_with("off", &flags);
    daemon.wait("the conf", || host.path(CONF).exists());
    let plugin = Plugin::new(&host);
    plugin.is_ready();
    // Nobody is left to make it again.
    daemon.end(Signal::SIGKILL);
    host.netns.ip("link del seaway.vx");
    let error = cni::failure(&plugin.status());
    assert_eq!(error["code"], 50);
    assert!(
        error["details"].as_str().unwrap().contains("seaway.vx"),
        "{error}"
    );
    let daemon = host.start_with("off", &flags);
    daemon.wait("the device", || plugin.status().status.success());
}
