//! What lives is left alone, whatever is missing around it.

use std::fs::File;
use std::process::Child;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, c_short};
use nix::mount::{MntFlags, umount2};
use seaway_testbed::{Netns, require_root, wait_until};
use serde_json::{Value, json};

use crate::node::{Node, address, assert_reaches, pod_path};
use crate::verbs::{add, mapping, nothing, released, sweep, sweep_twice};

/// The namespace's file goes; only a process inside keeps the namespace.
fn unlink(pod: Netns) -> Child {
    let inside = pod.spawn(&["sleep", "300"]);
    umount2(pod.path(), MntFlags::MNT_DETACH).unwrap();
    std::fs::remove_file(pod.path()).unwrap();
    drop(pod);
    inside
}

#[test]
fn case_70_a_pod_whose_namespace_file_is_gone_is_alive_while_its_interface_is() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/64"]);
    let pod = Netns::new("pod");
    let path = pod.path().to_owned();
    let ip = address(&add(&mut node, "c1", &pod, &[mapping("", 8080, "udp")]));
    let records = node.records();
    let mut inside = unlink(pod);
    for _ in 0..3 {
        assert_eq!(sweep(&node), nothing());
    }
    // The file that a mount leaves does not make it dead either.
    std::fs::write(&path, "").unwrap();
    assert_eq!(sweep_twice(&node), nothing());
    std::fs::remove_file(&path).unwrap();
    assert_reaches(&node.netns, &ip);
    assert_eq!(node.records(), records);

    inside.kill().unwrap();
    inside.wait().unwrap();
    // The kernel takes its interface down when it gets to it.
    let links = || node.netns.ip_json("link").as_array().unwrap().len();
    let gone = || {
        let left = links();
        Ok(if left == 1 {
            Ok(())
        } else {
            Err(left.to_string())
        })
    };
    wait_until(Duration::from_mins(1), "the interface to go", gone).unwrap();
    assert_eq!(released(&sweep_twice(&node)), ["c1"]);
    node.assert_empty();
}

#[test]
fn case_70_a_pod_that_has_lost_its_interface_keeps_its_record() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.add("c1", &pod);
    pod.ip("link del eth0");
    assert_eq!(sweep_twice(&node), nothing());
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
    node.del("c1", pod_path(&pod));
}

#[test]
fn case_70_a_pod_that_has_lost_its_record_is_told_and_left() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let result = node.add("c1", &pod);
    std::fs::remove_file(node.record_dir().join("10.244.1.2=c1:eth0")).unwrap();
    let told = sweep_twice(&node);
    assert_eq!(
        told["aliveWithoutRecord"],
        json!([result["interfaces"][0]["name"]])
    );
    assert_eq!(told["removedLinks"], json!([]));
    assert_reaches(&node.netns, &address(&result));
    node.del("c1", "");
}

/// An interface that is down cannot carry a packet; others' look alike.
#[test]
fn case_70_an_interface_that_nobody_has_finished_goes_and_others_stay() {
    if !require_root() {
        return;
    }
    let (node, pods) = (
        Node::new("10.244.1.0/24"),
        ["live", "half", "other"].map(Netns::new),
    );
    let live = address(&node.add("live", &pods[0]));
    let half = node.add("half", &pods[1]);
    let half = half["interfaces"][0]["name"].as_str().unwrap();
    std::fs::remove_file(node.record_dir().join("10.244.1.3=half:eth0")).unwrap();
    let mut other = Node::new("10.9.0.0/24");
    other.conf["name"] = json!("other");
    // The other network's lives on the same node.
    other.netns = node.netns;
    let result = other.add("other", &pods[2]);
    let theirs = result["interfaces"][0]["name"].as_str().unwrap();
    std::fs::remove_dir_all(other.dir.path().join("cni/other")).unwrap();
    let node = Node {
        netns: other.netns,
        ..node
    };
    for name in [half, theirs] {
        node.netns.ip(&format!("link set {name} down"));
    }
    node.netns
        .ip("link add sw0123456789ac type veth peer name mine");
    let swept = sweep_twice(&node);
    assert_eq!(swept["removedLinks"], json!([half]));
    assert_eq!(swept["aliveWithoutRecord"], json!([]));
    let left = node.netns.ip("-o link");
    assert!(
        left.contains(theirs) && left.contains("sw0123456789ac"),
        "{left}"
    );
    assert_reaches(&node.netns, &live);
    assert_eq!(sweep(&node), nothing());
}

/// A call holds its attachment's lock from before its record to its end, also while it
/// has no interface yet.
#[test]
fn case_70_a_call_under_way_is_left_alone() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pod = Netns::new("pod");
    node.add("c1", &pod);
    crate::sweep::die(&node, vec![pod]);
    // All bytes of the file, so that the call's is among them.
    let busy = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(node.dir.path().join("cni/seaway/busy"))
        .unwrap();
    let all = libc::flock {
        l_type: c_short::try_from(libc::F_WRLCK).expect("it is 1"),
        l_whence: c_short::try_from(libc::SEEK_SET).expect("it is 0"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&busy, FcntlArg::F_OFD_SETLK(&all)).unwrap();
    let swept = sweep_twice(&node);
    assert_eq!((released(&swept).len(), &swept["waiting"]), (0, &json!(1)));
    assert_eq!(node.records().len(), 1);
    drop(busy);
    assert_eq!(released(&sweep(&node)), ["c1"]);
    node.assert_empty();
}

/// Records, interfaces and ports of pods that live through everything.
#[test]
fn case_70_sweeps_during_calls_harm_none() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let live = Netns::new("live");
    let ip = address(&add(&mut node, "live", &live, &[mapping("", 8080, "tcp")]));
    let elements = || {
        node.netns
            .must_run(&["nft", "list", "map", "ip", "seaway", "hostports-any"])
    };
    let before = elements();
    let pods: Vec<Netns> = (0..4).map(|_| Netns::new("pod")).collect();
    for round in 0..5 {
        let calls: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(n, pod)| {
                let command = node.command("ADD", &format!("c{n}-{round}"), pod_path(pod));
                crate::node::start(command, &node.conf)
            })
            .collect();
        for _ in 0..3 {
            let swept = sweep(&node);
            assert_eq!(swept["released"], json!([]), "{swept}");
            assert_eq!(swept["removedLinks"], json!([]), "{swept}");
        }
        for call in calls {
            let result: Value = crate::node::success(&call.wait_with_output().unwrap());
            assert_reaches(&node.netns, &address(&result));
        }
        for n in 0..pods.len() {
            node.del(&format!("c{n}-{round}"), "");
        }
    }
    assert_eq!(elements(), before);
    assert_reaches(&node.netns, &ip);
    assert_eq!(node.records(), ["10.244.1.2=live:eth0"]);
}
