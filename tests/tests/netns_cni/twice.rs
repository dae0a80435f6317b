//! The same container and interface name in two calls that do not belong together.

use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, address, assert_reaches, pod_path};

#[test]
fn a_second_add_with_another_namespace_does_not_harm_the_first() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let (first, second) = (Netns::new("first"), Netns::new("second"));
    let live = address(&node.add("c1", &first));
    let error = node.fails("ADD", "c1", pod_path(&second));
    assert_eq!(error["code"], 100, "{error}");
    assert!(error["msg"].to_string().contains("c1"), "{error}");
    assert_reaches(&node.netns, &live);
    assert_eq!(node.records().len(), 1);
    // With its namespace gone, the name is free.
    drop(first);
    node.add("c1", &second);
    node.del("c1", "");
    node.assert_empty();
}

#[test]
fn a_del_of_another_network_leaves_the_pair_alone() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let pod = Netns::new("pod");
    let live = address(&node.add("c1", &pod));
    node.conf["name"] = json!("other");
    node.conf["ipam"]["ranges"] = json!([{"subnet": "10.245.1.0/24"}]);
    node.del("c1", pod_path(&pod));
    assert_reaches(&node.netns, &live);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert_eq!(error["code"], 100, "{error}");
    node.del("c1", pod_path(&pod));
    assert_reaches(&node.netns, &live);
    // Somebody has taken the mark away: the record tells whose it is.
    let links = node.netns.ip_json("link show type veth");
    let name = links[0]["ifname"].as_str().unwrap();
    node.netns.ip(&format!("link set {name} group default"));
    node.del("c1", "");
    assert_reaches(&node.netns, &live);
    node.conf["name"] = json!("seaway");
    node.del("c1", "");
    node.assert_empty();
}

#[test]
fn status_names_the_data_dir_where_nothing_can_be_written() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    node.conf["cniVersion"] = json!("1.1.0");
    let status = node.call("STATUS", "", "");
    assert!(status.status.success());
    let dir = node.dir.path().join("file");
    std::fs::write(&dir, "").unwrap();
    node.conf["ipam"]["dataDir"] = json!(dir);
    let error = node.fails("STATUS", "", "");
    assert_eq!(error["code"], 50, "{error}");
    assert!(error["details"].to_string().contains("/file"), "{error}");

    for options in ["ro", "size=4k", "nr_inodes=1"] {
        let dir = node.dir.path().join("full");
        std::fs::create_dir_all(&dir).unwrap();
        let text = dir.to_str().unwrap();
        let mount = format!(
            "mount -t tmpfs -o {options} none {text}; \
             dd if=/dev/zero of={text}/fill bs=4k count=1; exec \"$0\""
        );
        node.conf["ipam"]["dataDir"] = json!(dir);
        let mut command = node.netns.command("unshare");
        command.args(["-m", "sh", "-c", &mount, node.program.to_str().unwrap()]);
        command.env("CNI_COMMAND", "STATUS").env("CNI_PATH", "/opt");
        let error = crate::node::failure(&crate::node::feed(command, &node.conf));
        assert_eq!(error["code"], 50, "{options}: {error}");
        assert!(
            error["details"].to_string().contains(text),
            "{options}: {error}"
        );
    }
}

#[test]
fn a_pod_that_has_a_default_route_is_told_by_which_interface() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pod = Netns::new("pod");
    let live = address(&node.add("c1", &pod));
    let mut command = node.command("ADD", "c1", pod_path(&pod));
    command.env("CNI_IFNAME", "eth1");
    let error = crate::node::failure(&crate::node::feed(command, &node.conf));
    assert_eq!(error["code"], 100, "{error}");
    let msg = error["msg"].as_str().unwrap();
    assert_eq!(msg, "eth1: the pod has a default route by eth0 already");
    assert_reaches(&node.netns, &live);
    assert_eq!(node.records().len(), 1);
}
