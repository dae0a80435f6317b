//! GC of attachments whose addresses other plugins have given: those learn of each by a DEL.

use std::path::PathBuf;

use seaway_testbed::{Netns, require_root, skip, write_program};
use serde_json::{Value, json};

use super::gc;
use crate::node::{Node, addresses, assert_reaches, failure, text};

const KEY: &str = "cni.dev/valid-attachments";

/// A plugin that does nothing at GC, as most; it lets nothing go while there is a file `fail`.
const SCRIPT: &str = r#"#!/bin/sh
dir=${0%/*}
echo "$CNI_COMMAND $CNI_CONTAINERID" >> "$dir/calls"
/bin/cat > /dev/null
if [ "$CNI_COMMAND" = DEL ] && [ -f "$dir/fail" ]; then
    echo '{"cniVersion":"1.0.0","code":11,"msg":"not now"}'
    exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
    echo '{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.9/24"}]}'
fi
"#;

fn delegated(ipam: Value) -> Node {
    let mut node = Node::new("10.244.1.0/24");
    node.conf["dataDir"] = json!(node.dir.path().join("cni"));
    node.conf["ipam"] = ipam;
    node
}

struct Other {
    node: Node,
    dir: PathBuf,
}

impl Other {
    fn new() -> Self {
        let mut node = delegated(json!({"type": "other-ipam"}));
        let dir = node.dir.path().join("bin");
        std::fs::create_dir(&dir).unwrap();
        write_program(&dir.join("other-ipam"), SCRIPT);
        node.cni_path.clone_from(&dir);
        Self { node, dir }
    }

    /// Those since the last time.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        std::fs::remove_file(self.dir.join("calls")).ok();
        let lines = text.lines();
        lines.map(|line| line.trim_end().to_owned()).collect()
    }
}

/// As after the loss of libcni's cache, without which nobody calls DEL before GC.
#[test]
fn case_47_56_host_local_has_no_address_taken_that_no_valid_attachment_has() {
    if !require_root() {
        return;
    }
    let bin = seaway_testbed::cache_dir().join("bin");
    if !bin.join("host-local").is_file() {
        return skip("needs the reference plugin host-local");
    }
    let mut node = delegated(Value::Null);
    let theirs = node.dir.path().join("theirs");
    node.conf["ipam"] = json!({
        "type": "host-local", "dataDir": theirs,
        "ranges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd08::/64"}]],
    });
    node.cni_path = bin;
    let taken = || {
        let entries = std::fs::read_dir(theirs.join("seaway")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_address = |name: &String| name != "lock" && !name.starts_with("last_reserved");
        let mut taken: Vec<String> = names.filter(is_address).collect();
        taken.sort();
        taken
    };
    let (live, dead) = (Netns::new("live"), Netns::new("dead"));
    let of_live = addresses(&node.add("c1", &live));
    node.add("c2", &dead);
    assert_eq!(taken().len(), 4);
    // The dead one's interface need not be there any more.
    dead.ip("link del eth0");
    let done = gc(&mut node, KEY, &["c1"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(taken(), of_live);
    for address in &of_live {
        assert_reaches(&node.netns, address);
    }
    let done = gc(&mut node, KEY, &[]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(taken(), [""; 0]);
    node.assert_empty();
}

#[test]
fn case_47_56_a_record_stays_until_the_other_ipam_plugin_has_let_go() {
    if !require_root() {
        return;
    }
    let mut other = Other::new();
    let pods = ["pod1", "pod2"].map(Netns::new);
    other.node.add("c1", &pods[0]);
    assert_eq!(other.calls(), ["ADD c1"]);
    std::fs::write(other.dir.join("fail"), "").unwrap();
    let error = failure(&gc(&mut other.node, KEY, &[]));
    assert_eq!(error["code"], 11, "{error}");
    for part in ["container c1", "other-ipam", "not now"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(other.calls(), ["DEL c1", "GC"]);
    assert_eq!(other.node.records(), ["10.7.0.9=c1:eth0"]);
    std::fs::remove_file(other.dir.join("fail")).unwrap();
    let done = gc(&mut other.node, KEY, &[]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(other.calls(), ["DEL c1", "GC"]);
    other.node.assert_empty();

    // Whose a damaged record's address was it does not say, so the plugin of today is told.
    other.node.add("c2", &pods[1]);
    std::fs::write(other.node.record_dir().join("10.7.0.9=c2:eth0"), "").unwrap();
    let done = gc(&mut other.node, KEY, &[]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(other.calls(), ["ADD c2", "DEL c2", "GC"]);
    other.node.assert_empty();
}

/// As after a change to our own pools. Nobody is left who could let go, and a GC that failed
/// because of it would do so for ever.
#[test]
fn case_47_56_a_record_goes_untold_when_the_other_ipam_plugin_is_gone() {
    if !require_root() {
        return;
    }
    let mut other = Other::new();
    let pods = ["pod1", "pod2"].map(Netns::new);
    let (program, away) = (other.dir.join("other-ipam"), other.dir.join("away"));
    let theirs = other.node.conf["ipam"].clone();
    other.node.add("c1", &pods[0]);
    std::fs::rename(&program, &away).unwrap();
    other.node.conf["ipam"] = json!({"type": "seaway", "ranges": [{"subnet": "10.244.1.0/24"}]});
    let done = gc(&mut other.node, KEY, &[]);
    assert!(done.status.success(), "{}", text(&done));
    let told = String::from_utf8_lossy(&done.stderr);
    for part in ["container c1", "eth0", "other-ipam", "no such plugin"] {
        assert!(told.contains(part), "{told}");
    }
    other.node.assert_empty();

    // Where the conf still names it, GC fails because of the conf and keeps no record for it.
    std::fs::rename(&away, &program).unwrap();
    other.node.conf["ipam"] = theirs;
    other.node.add("c2", &pods[1]);
    std::fs::write(other.node.record_dir().join("10.7.0.9=c2:eth0"), "").unwrap();
    std::fs::rename(&program, &away).unwrap();
    let error = failure(&gc(&mut other.node, KEY, &[]));
    assert_eq!(error["code"], 7, "{error}");
    assert!(!error.to_string().contains("container c2"), "{error}");
    other.node.assert_empty();
}
