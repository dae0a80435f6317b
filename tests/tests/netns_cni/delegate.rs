//! Other plugins hand out the addresses.

use std::path::{Path, PathBuf};
use std::process::Output;

use seaway_testbed::{Netns, require_root, write_program};
use serde_json::{Value, json};

use crate::node::{Node, addresses, assert_reaches, failure, feed, pod_path, success, text};

/// A plugin that writes down how it is called, in shell.
const SCRIPT: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "$CNI_COMMAND" >> "$dir/calls"
/usr/bin/env > "$dir/env-$CNI_COMMAND"
/bin/cat > "$dir/stdin-$CNI_COMMAND"
if [ -f "$dir/fail-$CNI_COMMAND" ]; then
    echo '{"cniVersion":"1.0.0","code":11,"msg":"no more","details":"try later"}'
    exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
    /bin/cat "$dir/result"
fi
"#;

struct Other {
    node: Node,
    dir: PathBuf,
}

impl Other {
    fn new() -> Self {
        let mut node = Node::new("10.244.1.0/24");
        let dir = node.dir.path().join("bin");
        std::fs::create_dir(&dir).unwrap();
        write_program(&dir.join("other-ipam"), SCRIPT);
        let result = json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}, {"address": "fd07::9/64"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.7.0.1"}],
            "dns": {"nameservers": ["10.96.0.10"]},
        });
        std::fs::write(dir.join("result"), result.to_string()).unwrap();
        delegated(
            &mut node,
            json!({"type": "other-ipam", "dataDir": "/theirs", "strange": [1]}),
        );
        Self { node, dir }
    }

    fn call(&self, verb: &str, id: &str, pod: &str) -> Output {
        call(&self.node, verb, id, pod, &self.dir)
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        std::fs::remove_file(self.dir.join("calls")).ok();
        text.lines().map(str::to_owned).collect()
    }

    fn fail(&self, verb: &str, fails: bool) {
        let path = self.dir.join(format!("fail-{verb}"));
        if fails {
            std::fs::write(path, "").unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }
}

fn delegated(node: &mut Node, ipam: Value) {
    node.conf["dataDir"] = json!(node.dir.path().join("cni"));
    node.conf["ipam"] = ipam;
}

fn call(node: &Node, verb: &str, id: &str, pod: &str, cni_path: &Path) -> Output {
    let mut command = node.command(verb, id, pod);
    command.env("CNI_PATH", format!("/absent:{}", cni_path.display()));
    feed(command, &node.conf)
}

#[test]
fn case_56_every_verb_is_delegated_with_the_whole_conf() {
    if !require_root() {
        return;
    }
    let (mut other, pod) = (Other::new(), Netns::new("pod"));
    let path = pod_path(&pod);
    let result = success(&other.call("ADD", "c1", path));
    assert_eq!(addresses(&result), ["10.7.0.9", "fd07::9"]);
    assert_eq!(result["dns"], json!({"nameservers": ["10.96.0.10"]}));
    assert!(
        result["routes"]
            .as_array()
            .unwrap()
            .contains(&json!({"dst": "192.0.2.0/24", "gw": "169.254.1.1"}))
    );
    let route = &pod.ip_json("route show 192.0.2.0/24")[0];
    assert_eq!(route["gateway"], "169.254.1.1");
    assert_reaches(&other.node.netns, "10.7.0.9");
    assert_reaches(&other.node.netns, "fd07::9");
    assert_eq!(other.calls(), ["ADD"]);
    let seen = std::fs::read(other.dir.join("stdin-ADD")).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&seen).unwrap(),
        other.node.conf
    );
    let env = std::fs::read_to_string(other.dir.join("env-ADD")).unwrap();
    assert!(env.contains("CNI_CONTAINERID=c1\n") && env.contains("CNI_IFNAME=eth0\n"));

    other.node.conf["cniVersion"] = json!("1.1.0");
    other.node.conf["prevResult"] = result;
    for verb in ["CHECK", "STATUS"] {
        let done = other.call(verb, "c1", path);
        assert!(
            done.status.success() && done.stdout.is_empty(),
            "{}",
            text(&done)
        );
        assert_eq!(other.calls(), [verb]);
        other.fail(verb, true);
        let error = failure(&other.call(verb, "c1", path));
        assert_eq!(error["code"], 11, "{error}");
        assert!(error["msg"].as_str().unwrap().contains("no more"));
        other.calls();
    }
    other.node.conf["prevResult"] = Value::Null;
    other.node.conf["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert!(other.call("GC", "", "").status.success());
    assert_eq!(other.calls(), ["GC"]);
    assert_eq!(other.node.records().len(), 2);
    // Our own record stays until the other plugin has let go.
    other.fail("DEL", true);
    assert_eq!(failure(&other.call("DEL", "c1", ""))["code"], 11);
    assert_eq!(other.node.records().len(), 2);
    other.fail("DEL", false);
    assert!(other.call("DEL", "c1", "").status.success());
    assert_eq!(other.calls(), ["DEL", "DEL"]);
    other.node.assert_empty();
}

#[test]
fn case_56_what_a_failed_add_got_is_given_back() {
    if !require_root() {
        return;
    }
    let (other, pod) = (Other::new(), Netns::new("pod"));
    other.fail("ADD", true);
    let error = failure(&other.call("ADD", "c1", pod_path(&pod)));
    assert_eq!(error["code"], 11);
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("no more: try later")
    );
    assert_eq!(other.calls(), ["ADD", "DEL"]);
    other.fail("ADD", false);
    pod.ip("link add eth0 type veth peer name x");
    let error = failure(&other.call("ADD", "c1", pod_path(&pod)));
    assert!(error["msg"].as_str().unwrap().contains("eth0 exists"));
    assert_eq!(other.calls(), ["ADD", "DEL"]);
    pod.ip("link del eth0");
    // An address that we know to be somebody's is not taken twice.
    success(&other.call("ADD", "c1", pod_path(&pod)));
    let error = failure(&other.call("ADD", "c2", pod_path(&Netns::new("pod2"))));
    assert!(error["msg"].as_str().unwrap().contains("10.7.0.9 is taken"));
    assert_eq!(other.calls(), ["ADD", "ADD", "DEL"]);
    for nonsense in ["", "{", "{}", r#"{"ips":[]}"#, "[]"] {
        std::fs::write(other.dir.join("result"), nonsense).unwrap();
        failure(&other.call("ADD", "c3", pod_path(&Netns::new("pod3"))));
    }
    assert!(other.call("DEL", "c1", "").status.success());
    other.node.assert_empty();
}

#[test]
fn case_57_a_missing_plugin_is_named() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    delegated(&mut node, json!({"type": "nobody"}));
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert_eq!(error["code"], 7);
    assert!(
        error["msg"].as_str().unwrap().contains("ipam.type=nobody"),
        "{error}"
    );
    node.assert_empty();
}

/// The real ones, built by `cargo xtask setup`.
#[test]
fn case_56_host_local_and_static() {
    if !require_root() {
        return;
    }
    let bin = seaway_testbed::cache_dir().join("bin");
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let mut ran = 0;
    let theirs = node.dir.path().join("theirs");
    for (kind, ipam, want) in [
        (
            "host-local",
            json!({"type": "host-local", "dataDir": theirs, "ranges": [
                [{"subnet": "10.8.0.0/24"}], [{"subnet": "fd08::/64"}]]}),
            ["10.8.0.2", "fd08::2"],
        ),
        (
            "static",
            json!({"type": "static", "addresses": [
                {"address": "10.8.0.5/24"}, {"address": "fd08::5/64"}]}),
            ["10.8.0.5", "fd08::5"],
        ),
    ] {
        if !bin.join(kind).is_file() {
            seaway_testbed::skip(&format!("needs the reference plugin {kind}"));
            continue;
        }
        ran += 1;
        delegated(&mut node, ipam);
        let result = success(&call(&node, "ADD", "c1", pod_path(&pod), &bin));
        assert_eq!(addresses(&result), want);
        assert_reaches(&node.netns, want[0]);
        assert_reaches(&node.netns, want[1]);
        node.conf["prevResult"] = result;
        let checked = call(&node, "CHECK", "c1", pod_path(&pod), &bin);
        assert!(checked.status.success(), "{}", text(&checked));
        let deleted = call(&node, "DEL", "c1", pod_path(&pod), &bin);
        assert!(deleted.status.success(), "{}", text(&deleted));
        node.conf["prevResult"] = Value::Null;
        node.assert_empty();
    }
    let left: Vec<_> = std::fs::read_dir(theirs.join("seaway"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("10.8.0."))
        .filter(|name| !name.starts_with("last_reserved"))
        .collect();
    assert!(ran == 0 || left.is_empty(), "{left:?}");
}
