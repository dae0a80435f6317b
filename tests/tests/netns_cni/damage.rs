//! A folder of records that a crash, an old boot or a person has been at.

use seaway_testbed::{Netns, require_root, strace_is_missing};

use crate::node::{Node, address, assert_reaches, pod_path, text};
use crate::trace::lines;

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// System calls on files below the folder of records.
fn work(node: &Node, id: &str, pod: &Netns) -> usize {
    let calls = "openat,getdents64,unlink,unlinkat,rmdir,rename,mkdir";
    let dir = node.dir.path().to_str().unwrap().to_owned();
    let all = lines(node, "ADD", id, pod_path(pod), calls);
    all.iter().filter(|line| line.contains(&dir)).count()
}

#[test]
fn case_49_an_add_after_a_boot_does_not_wait_for_the_old_records() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::new(BOTH[0]), Netns::new("pod"));
    node.add("warm", &pod);
    node.del("warm", "");
    let usual = work(&node, "c1", &pod);
    node.del("c1", "");
    let old = node
        .dir
        .path()
        .join("cni/seaway/00000000-0000-0000-0000-000000000000");
    std::fs::create_dir(&old).unwrap();
    for n in 0..200 {
        let record = format!("10.244.1.{}=old{n}:eth0", n + 2);
        std::fs::write(old.join(record), "{}").unwrap();
    }
    let left = || std::fs::read_dir(&old).into_iter().flatten().count();
    let after = work(&node, "c1", &pod);
    // A bounded number of removals on top, and no more with more records.
    assert!(after <= usual + 24, "{usual} {after}");
    assert!((1..200).contains(&left()), "{}", left());
    // 10.244.1.2 and .3 have just been used.
    assert_eq!(
        node.netns.ip_json("route show proto 83")[0]["dst"],
        "10.244.1.4"
    );
    for n in 0..20 {
        let (id, pod) = (format!("n{n}"), Netns::new("pod"));
        node.add(&id, &pod);
        node.del(&id, "");
        if !old.exists() {
            node.del("c1", "");
            node.assert_empty();
            return;
        }
    }
    panic!("{} records of the old boot are still there", left());
}

#[test]
fn case_50_a_damaged_folder_of_records() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new(BOTH[0]), Netns::new("pod"));
    let live = address(&node.add("live", &pod));
    let dir = node.record_dir();
    // The living pod's record: empty, and cut off.
    for content in ["", "{\"bootId\":\"", "\u{0}\u{0}"] {
        std::fs::write(dir.join(format!("{live}=live:eth0")), content).unwrap();
        let other = Netns::new("other");
        assert_ne!(address(&node.add("other", &other)), live, "{content:?}");
        node.del("other", "");
    }
    for name in [
        "README",
        "x=y",
        "=",
        "10.244.1.9=",
        "10.244.1.9",
        ".new-1",
        ".new-x",
    ] {
        std::fs::write(dir.join(name), "?").unwrap();
    }
    std::fs::create_dir(dir.join("a-folder")).unwrap();
    let other = Netns::new("other");
    let added = address(&node.add("other", &other));
    assert_reaches(&node.netns, &added);
    assert_reaches(&node.netns, &live);
    assert!(dir.join("README").exists() && !dir.join(".new-1").exists());
    node.del("other", "");
    node.del("live", "");
    for name in ["x=y", "=", "10.244.1.9="] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    node.assert_empty();
}

/// The pod's interface has no record any more, and its address counts as free.
#[test]
fn case_50_an_address_that_is_routed_to_a_living_pod_is_not_given_again() {
    if !require_root() {
        return;
    }
    let mut node = Node::new(BOTH[0]);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.conf["ipam"]["ranges"][0]["rangeEnd"] = serde_json::json!("10.244.1.2");
    let live = address(&node.add("a", &a));
    std::fs::remove_file(node.record_dir().join(format!("{live}=a:eth0"))).unwrap();
    let error = node.fails("ADD", "b", pod_path(&b));
    let details = error["details"].as_str().unwrap();
    assert!(details.contains("route add 10.244.1.2/32"), "{error}");
    assert_reaches(&node.netns, &live);
    assert_eq!(node.records(), [""; 0]);
    node.del("a", "");
    node.add("b", &b);
    node.del("b", "");
    node.assert_empty();
}

/// The runtime's own memory is damaged (plugins#683, cni#1055): it calls with
/// no `prevResult`, no namespace, and what is left of the arguments.
#[test]
fn a_damaged_record_or_cache_never_blocks_del() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    for damage in ["", "{", "null", "[1]", "\u{fffd}"] {
        let pod = Netns::new("pod");
        node.add("c1", &pod);
        for record in node.records() {
            std::fs::write(node.record_dir().join(record), damage).unwrap();
        }
        for order in [".order-v4", ".order-v6"] {
            std::fs::write(node.record_dir().join(order), damage).unwrap();
        }
        let mut command = node.command("DEL", "c1", "");
        command.env_remove("CNI_ARGS").env_remove("CNI_NETNS");
        node.conf["prevResult"] = serde_json::Value::Null;
        let output = crate::node::feed(command, &node.conf);
        assert!(output.status.success(), "{damage:?}: {}", text(&output));
        node.assert_empty();
    }
}
