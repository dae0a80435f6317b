//! The calls of runtimes that are not here, in their order and form.

use std::process::Output;

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, addresses, assert_reaches, feed, pod_path, success, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// CRI-O (ocicni): it asks every plugin for its version when it loads a conf,
/// checks each pod at once after ADD, and collects garbage when it starts.
struct Crio {
    node: Node,
}

impl Crio {
    fn new() -> Self {
        let mut node = Node::with_ranges(&BOTH);
        node.conf["cniVersion"] = json!("1.1.0");
        // libcni leaves them in what the plugin reads.
        node.conf["capabilities"] = json!({"bandwidth": true, "cgroupPath": true});
        Self { node }
    }

    fn probe(&self) -> Value {
        let mut command = self.node.netns.command(&self.node.program);
        command
            .env_clear()
            .env("CNI_COMMAND", "VERSION")
            // What libcni's `invoke.GetVersionInfo` fills in.
            .env("CNI_NETNS", "dummy")
            .env("CNI_IFNAME", "dummy")
            .env("CNI_PATH", "dummy");
        success(&feed(command, &json!({"cniVersion": "1.1.0"})))
    }

    fn call(&mut self, verb: &str, id: &str, pod: &Netns, prev: &Value) -> Output {
        self.node.conf["runtimeConfig"] = json!({
            "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": u64::from(u32::MAX) * 8 - 1},
            "cgroupPath": "/kubepods/x",
        });
        self.node.conf["prevResult"] = prev.clone();
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;\
             K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID=3c1b"
        );
        let mut command = self.node.command(verb, id, pod_path(pod));
        command.env("CNI_ARGS", args);
        feed(command, &self.node.conf)
    }

    fn gc(&mut self, valid: &[&str]) -> Output {
        let valid: Vec<Value> = valid
            .iter()
            .map(|id| json!({"containerID": id, "ifname": "eth0"}))
            .collect();
        let mut conf = self.node.conf.clone();
        conf["runtimeConfig"] = Value::Null;
        conf["prevResult"] = Value::Null;
        // libcni 1.2.3 and newer send the list under both names.
        conf["cni.dev/valid-attachments"] = json!(valid);
        conf["cni.dev/attachments"] = json!(valid);
        let mut command = self.node.netns.command(&self.node.program);
        command
            .env_clear()
            .envs([("CNI_COMMAND", "GC"), ("CNI_PATH", "/opt/cni/bin")]);
        feed(command, &conf)
    }
}

#[test]
fn case_59_what_crio_calls() {
    if !require_root() {
        return;
    }
    let mut crio = Crio::new();
    let versions = crio.probe()["supportedVersions"].clone();
    assert!(versions.as_array().unwrap().contains(&json!("1.1.0")));
    crio.node.assert_empty();
    let pods: Vec<Netns> = (0..3).map(|_| Netns::new("pod")).collect();
    let mut results = Vec::new();
    for (n, pod) in pods.iter().enumerate() {
        let id = format!("c{n}");
        let result = success(&crio.call("ADD", &id, pod, &Value::Null));
        let checked = crio.call("CHECK", &id, pod, &result);
        assert!(checked.status.success(), "{}", text(&checked));
        assert!(checked.stdout.is_empty(), "{}", text(&checked));
        results.push(result);
    }
    // It starts again; one pod has died meanwhile.
    crio.probe();
    let done = crio.gc(&["c0", "c2"]);
    assert!(
        done.status.success() && done.stdout.is_empty(),
        "{}",
        text(&done)
    );
    for n in [0, 2] {
        let checked = crio.call("CHECK", &format!("c{n}"), &pods[n], &results[n]);
        assert!(checked.status.success(), "{}", text(&checked));
        for address in addresses(&results[n]) {
            assert_reaches(&crio.node.netns, &address);
        }
    }
    assert_eq!(pods[1].ip_json("link").as_array().unwrap().len(), 1);
    let gone = addresses(&results[1]);
    let held = |ip: &String| {
        crio.node
            .records()
            .iter()
            .any(|r| r.starts_with(&format!("{ip}=")))
    };
    assert!(!gone.iter().any(held));
    for n in [0, 2] {
        let deleted = crio.call("DEL", &format!("c{n}"), &pods[n], &results[n]);
        assert!(deleted.status.success(), "{}", text(&deleted));
    }
    crio.node.assert_empty();
    assert_eq!(elements(&crio.node), [""; 0]);
}
