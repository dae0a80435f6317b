//! A file system that has no room, and what comes after it.

use seaway_testbed::{Netns, require_root};
use serde_json::Value;

use crate::node::{Node, addresses, assert_reaches, feed, pod_path, success};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// $0 is the plugin, $1 the node's folder. Both calls are in here since what is mounted ends
/// with the process that has unshared its mounts.
const TWO_CALLS: &str = r#"
set -e
cat >"$1/conf"
mount -t tmpfs -o size=64k none "$1/cni"
dd if=/dev/zero of="$1/cni/fill" bs=4k 2>/dev/null || true
status=0
"$0" <"$1/conf" >"$1/refused" || status=$?
echo $status >"$1/status"
ip -o link show >"$1/links"
rm "$1/cni/fill"
"$0" <"$1/conf"
ls -R "$1/cni" >"$1/records"
"#;

#[test]
fn case_33_an_add_works_as_soon_as_there_is_room_again() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let dir = node.dir.path();
    std::fs::create_dir(dir.join("cni")).unwrap();
    let plain = node.command("ADD", "c1", pod_path(&pod));
    let mut command = node.netns.command("unshare");
    command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command
        .args(["--mount", "sh", "-c", TWO_CALLS])
        .arg(&node.program)
        .arg(dir)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let result = success(&feed(command, &node.conf));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let error: Value = serde_json::from_str(&read("refused")).unwrap();
    assert_eq!(error["code"], 5, "{error}");
    let details = error["details"].as_str().unwrap();
    assert!(details.contains("No space left"), "{error}");
    assert_eq!(read("status").trim(), "1");
    assert_eq!(read("links").lines().count(), 1, "{}", read("links"));
    for address in addresses(&result) {
        assert_reaches(&node.netns, &address);
        let records = read("records");
        let record = format!("{address}=c1:eth0");
        assert!(records.lines().any(|line| line == record), "{records}");
    }
    // The records are gone with the file system.
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}
