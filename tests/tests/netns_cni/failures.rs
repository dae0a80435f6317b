//! ADD that fails or is killed leaves nothing behind.

use std::io::Write as _;
use std::process::Stdio;

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::node::{Node, address, assert_reaches, pod_path};

#[test]
fn case_14_19_22_30_a_failed_add_leaves_nothing_and_says_why() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    let good = node.conf.clone();
    let msg = |error: &Value| error["msg"].as_str().unwrap().to_owned();

    let error = node.fails("ADD", "c1", "/run/netns/absent");
    assert_eq!(error["code"], 4);
    assert!(
        msg(&error).contains("CNI_NETNS=/run/netns/absent"),
        "{error}"
    );
    assert_eq!(node.fails("ADD", "c1", "/etc/passwd")["code"], 4);
    node.assert_empty();

    let error = node.fails("ADD", "c1", pod_path(&node.netns));
    assert_eq!(error["code"], 8, "the plugin's own namespace");
    node.assert_empty();

    pod.ip("link add eth0 type veth peer name x");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        msg(&error).contains("interface eth0 exists already in the pod's"),
        "{error}"
    );
    assert_eq!(pod.ip_json("link show eth0").as_array().unwrap().len(), 1);
    pod.ip("link del eth0");
    node.assert_empty();

    node.netns
        .ip("link add swec43057c07aa type veth peer name x");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        msg(&error).contains("swec43057c07aa exists already in the host's"),
        "{error}"
    );
    node.netns.ip("link del swec43057c07aa");
    node.assert_empty();

    // The last step: the host has a route to this address already.
    node.netns.ip("link add x0 type veth peer name x1");
    node.netns.ip("link set x0 up");
    node.netns.ip("route add 10.244.1.2/32 dev x0");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        error["details"]
            .as_str()
            .unwrap()
            .contains("route add 10.244.1.2/32"),
        "{error}"
    );
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1, "only lo");
    node.netns.ip("link del x0");
    node.assert_empty();

    node.conf["mtuu"] = json!(1500);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert_eq!(error["code"], 7);
    assert!(msg(&error).contains("mtuu: unknown key"), "{error}");
    node.conf = good;
    node.add("c1", &pod);
    let full = node.fails("ADD", "c2", pod_path(&Netns::new("pod2")));
    assert_eq!(full["code"], 11);
    assert_eq!(
        msg(&full),
        "no free address in 10.244.1.0/30: all 1 are taken, by 1 attachments: \
         default/web (container c1:eth0)"
    );
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn case_32_a_result_that_nobody_can_read_is_a_failed_add() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    // EPIPE: whoever was to read has gone.
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for stdout in [Stdio::from(full), Stdio::from(unread)] {
        let mut command = node.command("ADD", "c1", pod_path(&pod));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(node.conf.to_string().as_bytes()).unwrap();
        drop(stdin);
        // No signal: the ADD has to take back what it did.
        assert!(child.wait().unwrap().code().is_some_and(|code| code != 0));
        node.assert_empty();
    }
}

#[test]
fn a_killed_add_that_is_repeated_goes_on_with_its_address() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    node.add("c1", &pod);
    // As if it had been killed between the record and the interface.
    node.netns.ip("link del swec43057c07aa");
    let result = node.add("c1", &pod);
    assert_reaches(&node.netns, &address(&result));
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}
