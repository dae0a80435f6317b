//! Versions, results, CHECK, STATUS, VERSION.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

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
    let supported = json!([
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"
    ]);
    // With the conf, with nothing, and with what the specification has.
    for conf in [
        node.conf.to_string(),
        String::new(),
        r#"{"cniVersion":"0.4.0"}"#.to_owned(),
    ] {
        let mut command = node.netns.command(&node.program);
        command.env_clear().env("CNI_COMMAND", "VERSION");
        let version = success(&feed_text(command, &conf));
        assert_eq!(version["supportedVersions"], supported, "{conf}");
        assert!(version["cniVersion"].is_string(), "{conf}");
    }
    let error = node.fails("FOO", "c1", "");
    assert_eq!(error["code"], 4);
    let message = error["msg"].as_str().unwrap();
    assert!(message.contains("CNI_COMMAND=FOO"), "{error}");
    for (missing, names) in [
        (&["CNI_NETNS", "CNI_IFNAME"][..], "CNI_IFNAME, CNI_NETNS"),
        (&["CNI_CONTAINERID"], "CNI_CONTAINERID"),
        (
            &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
            "CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS",
        ),
    ] {
        let mut command = node.command("ADD", "c1", "/run/netns/x");
        for name in missing {
            command.env_remove(name);
        }
        let error = crate::node::failure(&feed_text(command, &node.conf.to_string()));
        assert_eq!(error["code"], 4);
        let message = error["msg"].as_str().unwrap();
        assert!(message.ends_with(&format!("missing: {names}")), "{error}");
    }
    // Somebody has typed its name: on a terminal, and without one.
    let mut plain = node.netns.command(&node.program);
    let mut terminal = node.netns.command("script");
    let by_hand = format!("{} 2>&1 >/dev/null", node.program.display());
    terminal.args(["--quiet", "--return", "--command", &by_hand, "/dev/null"]);
    for (name, command) in [("null", plain.env_clear()), ("tty", terminal.env_clear())] {
        command.env("PATH", "/usr/bin:/bin");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output));
        // A terminal has one stream for both.
        let about = if name == "tty" {
            &output.stdout
        } else {
            &output.stderr
        };
        let about = String::from_utf8_lossy(about);
        assert!(
            about.contains("Seaway CNI plugin") && about.contains("1.1.0"),
            "{about}"
        );
        assert!(
            name == "tty" || output.stdout.is_empty(),
            "{}",
            text(&output)
        );
    }
    assert!(!node.dir.path().join("cni").exists(), "nothing was touched");
    node.assert_empty();
}

pub(crate) fn feed_text(mut command: Command, conf: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    // Who fails early does not read it.
    child.stdin.take().unwrap().write_all(conf.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

#[test]
fn case_7_versions_that_are_absent_or_not_supported() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (
        Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/64"]),
        Netns::new("pod"),
    );
    for strange in ["2.0.0", "1.1", "0.5.0"] {
        node.conf["cniVersion"] = json!(strange);
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let error = node.fails(verb, "c1", pod_path(&pod));
            assert_eq!(error["code"], 1, "{verb} {strange}: {error}");
            let all = format!("{} {}", error["msg"], error["details"]);
            assert!(all.contains(strange) && all.contains("0.1.0, ") && all.contains("1.1.0"));
        }
    }
    node.assert_empty();
    node.conf.as_object_mut().unwrap().remove("cniVersion");
    let result = node.add("c1", &pod);
    assert_eq!(result["ip4"]["ip"], "10.244.1.2/32", "{result}");
    assert_eq!(result["ip6"]["ip"], "fd00:1:2::2/128", "{result}");
    assert!(result.get("ips").is_none() && result.get("interfaces").is_none());
    node.del("c1", "");
    node.assert_empty();
}
