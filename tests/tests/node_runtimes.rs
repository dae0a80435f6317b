//! containerd, old and new, drives seaway-cni without our agent or proxy.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Output;

use seaway_testbed::node::{Config, Flavour, Node, PATIENCE, SOCKET};
use seaway_testbed::{cache_dir, require_root, skip, wait_until};
use serde_json::{Value, json};

/// What seaway-proxy writes: old containerd takes 1.0.0, a new one the newest
/// that it knows.
fn conf(v4: &str) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "cniVersions": ["0.4.0", "1.0.0", "1.1.0"],
        "name": "seaway",
        "plugins": [{
            "type": "seaway-cni",
            "mtu": 1450,
            "capabilities": {"portMappings": true, "bandwidth": true, "dns": true},
            "ipam": {
                "type": "seaway",
                "ranges": [{"subnet": v4}, {"subnet": "fd00:10:244:1::/64"}],
                "dataDir": "/run/seaway/cni",
            },
        }],
    })
}

/// From inside: containerd watches the folder, and is told of nothing that is
/// written beside its overlay.
fn install(node: &Node, conf: &Value) {
    let script = r#"cd /etc/cni/net.d && printf %s "$0" >.05-seaway.conflist.partial &&
        mv .05-seaway.conflist.partial 05-seaway.conflist"#;
    let done = node.run(&["sh", "-c", script, &conf.to_string()]).unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn crictl(node: &Node, args: &[&str]) -> Output {
    let endpoint = format!("unix://{SOCKET}");
    let mut command = node.place().command(cache_dir().join("bin/crictl"));
    command.args([
        "--runtime-endpoint",
        &endpoint,
        "--image-endpoint",
        &endpoint,
    ]);
    command
        .args(["--timeout", "60s"])
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
fn crictl_says(node: &Node, args: &[&str]) -> String {
    let output = crictl(node, args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "crictl {args:?}: {words}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whether the network is ready, and what is said when it is not.
fn network_ready(node: &Node) -> Result<(), String> {
    let info: Value = serde_json::from_str(&crictl_says(node, &["info"])).unwrap();
    let conditions = info["status"]["conditions"].as_array().unwrap();
    let network = conditions
        .iter()
        .find(|c| c["type"] == "NetworkReady")
        .unwrap();
    if network["status"].as_bool().unwrap() {
        Ok(())
    } else {
        Err(network["message"].to_string())
    }
}

fn sandbox(node: &Node, name: &str) -> String {
    let config = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "attempt": 0},
        "hostname": name,
        "log_directory": "/run/log",
        "port_mappings": [{"protocol": 0, "container_port": 80, "host_port": 8080}],
        "linux": {"cgroup_parent": format!("{}/box", node.place().cgroup_root())},
    });
    let path = node.place().dir().join(format!("{name}.json"));
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn links(node: &Node) -> usize {
    node.place()
        .netns()
        .ip_json("link")
        .as_array()
        .unwrap()
        .len()
}

fn a_pod_gets_its_network(flavour: Flavour, has_status: bool) {
    if !require_root() {
        return;
    }
    if !flavour.is_installed() || !cache_dir().join("bin/crictl").exists() {
        return skip("needs containerd and crictl: cargo xtask setup");
    }
    let mut config = Config::new("runtime", "off");
    config.flavour = flavour;
    let node = Node::new(config).unwrap();
    assert!(network_ready(&node).is_err(), "there is no conf yet");
    let before = links(&node);
    install(&node, &conf("10.244.1.0/30"));
    wait_until(PATIENCE, "the network to be ready", || {
        Ok(network_ready(&node))
    })
    .unwrap();

    let id = crictl_says(&node, &["runp", &sandbox(&node, "web")]);
    let seen: Value = serde_json::from_str(&crictl_says(&node, &["inspectp", &id])).unwrap();
    let network = &seen["status"]["network"];
    assert_eq!(network["ip"], "10.244.1.2", "{network}");
    assert_eq!(
        network["additionalIps"][0]["ip"], "fd00:10:244:1::2",
        "{network}"
    );
    assert_eq!(links(&node), before + 1);
    for target in ["10.244.1.2:9", "[fd00:10:244:1::2]:9"] {
        let refused = node.place().netns().ask_udp(target).unwrap_err();
        assert_eq!(
            refused.kind(),
            std::io::ErrorKind::ConnectionRefused,
            "{target}"
        );
    }
    // The second network of every sandbox is lo, by our program under that name.
    let namespaces = seen["info"]["runtimeSpec"]["linux"]["namespaces"]
        .as_array()
        .unwrap();
    let path = namespaces.iter().find(|n| n["type"] == "network").unwrap()["path"].clone();
    let enter = format!("--net={}", path.as_str().unwrap());
    let lo = node
        .run(&["nsenter", &enter, "ip", "-j", "addr", "show", "lo"])
        .unwrap();
    let lo: Value = serde_json::from_slice(&lo.stdout).unwrap();
    assert!(
        lo[0]["flags"].as_array().unwrap().contains(&json!("UP")),
        "{lo}"
    );
    assert_eq!(lo[0]["addr_info"][0]["local"], "127.0.0.1");

    // The only address is given, which containerd asks for since 2.0.
    let full = network_ready(&node);
    assert_eq!(full.is_err(), has_status, "{full:?}");
    let refused = crictl(&node, &["runp", &sandbox(&node, "second")]);
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    if !has_status {
        assert!(
            words.contains("no free address in 10.244.1.0/30"),
            "{words}"
        );
    }
    for verb in ["stopp", "stopp", "rmp"] {
        crictl_says(&node, &[verb, &id]);
    }
    assert_eq!(links(&node), before);
    assert_eq!(
        node.place().netns().ip_json("route show proto 83"),
        json!([])
    );
    wait_until(PATIENCE, "the network to be ready again", || {
        Ok(network_ready(&node))
    })
    .unwrap();
}

#[test]
fn case_58_containerd_1_6_with_a_conf_of_several_versions() {
    a_pod_gets_its_network(Flavour::Debian, false);
}

#[test]
fn case_58_containerd_1_7_with_a_conf_of_several_versions() {
    a_pod_gets_its_network(Flavour::Built17, false);
}

#[test]
fn case_58_containerd_2_2_with_a_conf_of_several_versions() {
    a_pod_gets_its_network(Flavour::Built, true);
}
