//! Versions, results, CHECK, STATUS, VERSION.

use std::process::Stdio;

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::node::{Node, pod_path, success, text};

#[test]
fn each_version_gets_its_own_form() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        node.conf["cniVersion"] = json!(version);
        let pod = Netns::new("pod");
        let result = node.add(version, &pod);
        assert_eq!(result["cniVersion"], version);
        let old = version < "1.0.0";
        assert_eq!(
            result["ips"][0]["version"],
            if old { json!("4") } else { Value::Null }
        );
        let new = version == "1.1.0";
        assert_eq!(
            result["interfaces"][1]["mtu"],
            if new { json!(1450) } else { Value::Null }
        );
        node.conf["prevResult"] = result;
        if version != "0.3.1" {
            let checked = node.call("CHECK", version, pod_path(&pod));
            assert!(
                checked.status.success() && checked.stdout.is_empty(),
                "{}",
                text(&checked)
            );
        }
        node.del(version, pod_path(&pod));
        node.conf["prevResult"] = Value::Null;
    }
    node.assert_empty();
}

#[test]
fn a_chained_result_is_passed_on() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.conf["prevResult"] = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "net1", "sandbox": pod_path(&pod)}],
        "ips": [{"address": "192.0.2.7/24", "interface": 0}],
    });
    let result = node.add("c1", &pod);
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
    assert_eq!(
        result["ips"][0],
        json!({"address": "192.0.2.7/24", "interface": 0})
    );
    assert_eq!(result["ips"][1]["interface"], 2);
}

#[test]
fn case_43_45_check_names_what_is_missing() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let error = node.fails("CHECK", "c1", pod_path(&pod));
    assert_eq!(error["code"], 7, "no prevResult");
    for (damage, on_host, named) in [
        (
            "addr del 10.244.1.2/32 dev eth0",
            false,
            "eth0 lost 10.244.1.2",
        ),
        ("route del default", false, "default route"),
        ("neigh del 169.254.1.1 dev eth0", false, "169.254.1.1"),
        ("link set eth0 down", false, "eth0 is down"),
        ("route del 10.244.1.2", true, "route to 10.244.1.2"),
        ("link del swec43057c07aa", true, "eth0 is gone"),
    ] {
        node.conf["prevResult"] = Value::Null;
        node.conf["ipam"]["ranges"][0]["subnet"] = json!("10.244.1.0/30");
        let result = node.add("c1", &pod);
        node.conf["prevResult"] = result;
        assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
        (if on_host { &node.netns } else { &pod }).ip(damage);
        let error = node.fails("CHECK", "c1", pod_path(&pod));
        assert!(
            error["msg"].as_str().unwrap().contains(named),
            "{damage}: {error}"
        );
        node.del("c1", "");
        assert!(node.call("CHECK", "c1", pod_path(&pod)).status.code() == Some(1));
    }
}

#[test]
fn status_follows_the_pool() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    assert_eq!(
        node.fails("STATUS", "", "")["code"],
        1,
        "STATUS came with 1.1.0"
    );
    node.conf["cniVersion"] = json!("1.1.0");
    assert!(node.call("STATUS", "", "").status.success());
    node.add("c1", &pod);
    let error = node.fails("STATUS", "", "");
    assert_eq!(error["code"], 50);
    assert!(
        error["details"].as_str().unwrap().contains("10.244.1.0/30"),
        "{error}"
    );
    node.del("c1", "");
    assert!(node.call("STATUS", "", "").status.success());
}

#[test]
fn case_1_to_4_version_and_commands_that_are_none() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let version = success(&node.call("VERSION", "", ""));
    assert_eq!(
        version["supportedVersions"],
        json!([
            "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"
        ])
    );
    assert_eq!(node.fails("FOO", "c1", "")["code"], 4);
    let error = node.fails("ADD", "", "");
    assert_eq!(error["code"], 4);
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("CNI_CONTAINERID, CNI_NETNS"),
        "{error}"
    );
    let by_hand = node
        .netns
        .command(&node.program)
        .env_clear()
        .stdin(Stdio::null())
        .output();
    let by_hand = by_hand.unwrap();
    assert!(by_hand.status.success() && by_hand.stdout.is_empty());
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("1.1.0"));
}
