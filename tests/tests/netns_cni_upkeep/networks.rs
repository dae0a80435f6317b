//! All networks that have records, where none is named.

use std::time::{Duration, Instant};

use seaway_testbed::{Netns, require_root, write_program};
use serde_json::{Value, json};

use crate::node::{Node, address, assert_reaches, feed, pod_path, success, text};
use crate::sweep::die;
use crate::verbs::{output, released};

const SWEEP: [&str; 3] = ["sweep", "--apart", "0"];

/// In the network of this name, which has a range of its own.
fn add(node: &mut Node, network: &str, id: &str, pod: &Netns) -> String {
    let range = match network {
        "seaway" => "10.244.1.0/24",
        _ => "10.9.0.0/24",
    };
    node.conf["name"] = json!(network);
    node.conf["ipam"]["ranges"] = json!([{"subnet": range}]);
    address(&node.add(id, pod))
}

fn report(stdout: &[u8]) -> Value {
    serde_json::from_slice(stdout).unwrap()
}

#[test]
fn case_70_dead_pods_of_every_network_are_released() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let [live, first, second] = ["live", "first", "second"].map(Netns::new);
    let ip = add(&mut node, "other", "live", &live);
    add(&mut node, "seaway", "first", &first);
    add(&mut node, "other", "second", &second);
    // Somebody else's folder beside them, with what could be the records of another boot.
    let theirs = node.dir.path().join("cni/theirs/of-a-boot");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("10.9.0.9=c9:eth0"), "{}").unwrap();
    die(&node, vec![first, second]);

    let sweep = || {
        let output = output(&node, &SWEEP);
        assert!(output.status.success(), "{}", text(&output));
        report(&output.stdout)
    };
    let seen = sweep();
    assert_eq!((released(&seen).len(), &seen["waiting"]), (0, &json!(2)));
    let swept = sweep();
    let mut gone = released(&swept);
    gone.sort_unstable();
    assert_eq!(gone, ["first", "second"]);
    let repaired = output(&node, &["repair"]);
    assert!(repaired.status.success(), "{}", text(&repaired));
    assert!(theirs.join("10.9.0.9=c9:eth0").exists());
    let beside = std::fs::read_dir(theirs.parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 1, "nothing of ours is there");
    assert_reaches(&node.netns, &ip);
    node.del("live", "");
    node.assert_empty();
}

#[test]
fn case_70_a_network_that_cannot_be_swept_keeps_no_other_from_it() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let pods = ["first", "second"].map(Netns::new);
    add(&mut node, "another", "first", &pods[0]);
    add(&mut node, "seaway", "second", &pods[1]);
    // A file is where the folder of its records was.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let records = node.dir.path().join("cni/another").join(boot.trim());
    std::fs::remove_dir_all(&records).unwrap();
    std::fs::write(&records, "").unwrap();
    die(&node, pods.into());
    output(&node, &SWEEP);
    let swept = output(&node, &SWEEP);
    assert_eq!(swept.status.code(), Some(1), "{}", text(&swept));
    let swept = report(&swept.stdout);
    assert_eq!(released(&swept), ["second"]);
    let failures = swept["failures"].to_string();
    assert!(failures.contains("network another"), "{failures}");
}

/// An IPAM plugin whose DEL does not end. The address is made of the length of the
/// container's id.
const HANGS: &str = r#"#!/bin/sh
/bin/cat > /dev/null
if [ "$CNI_COMMAND" = ADD ]; then
    echo '{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.'${#CNI_CONTAINERID}'/24"}]}'
    exit 0
fi
echo "$CNI_CONTAINERID" >> "$(/usr/bin/dirname "$0")/calls"
exec /bin/sleep 300
"#;

/// Takes the 15 s that a sweep gives a plugin.
#[test]
fn an_ipam_plugin_that_hangs_keeps_no_other_network_from_the_sweep() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let pods = ["aa", "bbb", "last"].map(Netns::new);
    let dir = node.dir.path().join("bin");
    std::fs::create_dir(&dir).unwrap();
    write_program(&dir.join("hangs"), HANGS);
    let mut conf = node.conf.clone();
    conf["name"] = json!("another");
    conf["dataDir"] = conf["ipam"]["dataDir"].clone();
    conf["ipam"] = json!({"type": "hangs"});
    for (id, pod) in [("aa", &pods[0]), ("bbb", &pods[1])] {
        let mut command = node.command("ADD", id, pod_path(pod));
        command.env("CNI_PATH", &dir);
        success(&feed(command, &conf));
    }
    // By its name it comes after the one that hangs.
    add(&mut node, "other", "last", &pods[2]);
    die(&node, pods.into());

    output(&node, &SWEEP);
    let began = Instant::now();
    let swept = output(&node, &SWEEP);
    let took = began.elapsed();
    assert_eq!(swept.status.code(), Some(1), "{}", text(&swept));
    assert!(took < Duration::from_mins(1), "{took:?}");
    let swept = report(&swept.stdout);
    assert_eq!(released(&swept), ["last"]);
    let failures = swept["failures"].to_string();
    assert!(failures.contains("no answer within 15 s"), "{failures}");
    assert!(failures.contains("not called"), "{failures}");
    let calls = std::fs::read_to_string(dir.join("calls")).unwrap();
    assert_eq!(calls, "aa\n");
    // The next sweep has something to tell.
    assert_eq!(swept["waiting"], json!(2));
}

#[test]
fn a_network_that_cannot_be_repaired_keeps_no_other_from_it() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pod = Netns::new("pod");
    let ip = address(&node.add("c1", &pod));
    let boot = node.record_dir().file_name().unwrap().to_owned();
    // Folders are where the locks over all records and over single ones are to be.
    for (network, lock) in [("another", "lock"), ("other", "busy")] {
        let network = node.dir.path().join("cni").join(network);
        std::fs::create_dir_all(network.join(lock)).unwrap();
        std::fs::create_dir(network.join(&boot)).unwrap();
        std::fs::write(network.join(&boot).join("10.9.0.2=c9:eth0"), "").unwrap();
    }
    node.netns.ip("route flush proto 83");
    let repaired = output(&node, &["repair"]);
    assert_eq!(repaired.status.code(), Some(1), "{}", text(&repaired));
    let repaired = report(&repaired.stdout);
    assert!(repaired["routes"].as_u64() > Some(0), "{repaired}");
    let failures = repaired["failures"].as_array().unwrap();
    let tells = |network: &str| failures.iter().any(|f| f.to_string().contains(network));
    assert_eq!(failures.len(), 2, "{repaired}");
    assert!(tells("network another"), "{repaired}");
    assert!(tells("network other"), "{repaired}");
    assert_reaches(&node.netns, &ip);
}
