//! ADD and DEL killed at every step.
//!
//! What a killed process leaves changes only with the system calls that change
//! something, so a kill at each of those, before it is carried out, meets every
//! state that there is. Which they are is found by tracing a whole run.

use seaway_testbed::{Netns, require_root};
use serde_json::json;
use std::collections::BTreeMap;

use crate::hostports::elements;
use crate::node::{Node, addresses, assert_reaches, pod_path, success, text};
use crate::trace::{strace_is_missing, traced};

/// `openat` counts when it creates.
const CHANGING: [&str; 11] = [
    "openat",
    "write",
    "pwrite64",
    "mkdir",
    "rename",
    "unlink",
    "rmdir",
    "sendto",
    "fcntl",
    "fsync",
    "exit_group",
];

/// The k-th call of a system call.
type Point = (String, usize);

fn points(node: &Node, verb: &str, id: &str, pod: &str) -> Vec<Point> {
    let log = node.dir.path().join("trace");
    let set = format!("trace={}", CHANGING.join(","));
    let output = traced(
        node,
        verb,
        id,
        pod,
        &["-e", &set, "-o", log.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stderr.is_empty(), "{}", text(&output));
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut points = Vec::new();
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        let Some((pid, call)) = line.split_once(' ') else {
            continue;
        };
        let Some((name, rest)) = call.trim_start().split_once('(') else {
            continue;
        };
        // Settings wait for the kernel's RTNL lock by starting again.
        if rest.contains("ERESTART") {
            continue;
        }
        // strace counts for each thread by itself.
        let count = counts.entry((pid.to_owned(), name.to_owned())).or_default();
        *count += 1;
        let changes = name != "openat" || rest.contains("O_CREAT");
        let point = (name.to_owned(), *count);
        if changes && CHANGING.contains(&name) && !points.contains(&point) {
            points.push(point);
        }
    }
    assert!(points.len() > 15, "{points:?}");
    points
}

/// False when the call was not reached: the number of waits varies.
fn kill(node: &Node, verb: &str, id: &str, pod: &str, (name, count): &Point) -> bool {
    let trace = format!("trace={name}");
    let inject = format!("inject={name}:signal=KILL:when={count}");
    let options = ["-e", &trace, "-e", &inject, "-o", "/dev/null"];
    !traced(node, verb, id, pod, &options).status.success()
}

fn node() -> Node {
    let mut node = Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/64"]);
    node.conf["runtimeConfig"] = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp"}]
    });
    node
}

/// Somebody else's ADD gets addresses that nobody has, and they work.
#[track_caller]
fn assert_another_can_be_added(node: &mut Node, point: &Point) {
    let other = Netns::new("other");
    let ports = node.conf["runtimeConfig"].take();
    let result = success(&node.call("ADD", "other", pod_path(&other)));
    node.conf["runtimeConfig"] = ports;
    let records = node.records();
    for address in addresses(&result) {
        let holders = records
            .iter()
            .filter(|record| record.starts_with(&format!("{address}=")));
        assert_eq!(holders.count(), 1, "{point:?}: {records:?}");
        assert_reaches(&node.netns, &address);
    }
    node.del("other", "");
}

#[track_caller]
fn assert_nothing_is_left(node: &Node, pod: &Netns, point: &Point) {
    node.assert_empty();
    assert_eq!(elements(node), [""; 0], "{point:?}");
    assert_eq!(
        pod.ip_json("link").as_array().unwrap().len(),
        1,
        "{point:?}"
    );
}

#[test]
fn case_29_add_killed_at_every_step_is_cleaned_by_del() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    let path = pod_path(&pod).to_owned();
    // The node's own settings are made by the first ADD.
    node.add("first", &pod);
    node.del("first", &path);
    let points = points(&node, "ADD", "killed", &path);
    node.del("killed", &path);
    let mut killed = 0;
    for (n, point) in points.iter().enumerate() {
        killed += usize::from(kill(&node, "ADD", "killed", &path, point));
        assert_another_can_be_added(&mut node, point);
        // The runtime may call DEL, or try again first.
        if n % 2 == 0 && pod.ip_json("link").as_array().unwrap().len() == 1 {
            let result = node.add("killed", &pod);
            assert_reaches(&node.netns, &addresses(&result)[1]);
        }
        node.del("killed", if n % 3 == 0 { "" } else { &path });
        assert_nothing_is_left(&node, &pod, point);
    }
    assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
}

#[test]
fn case_29_del_killed_at_every_step_is_completed_by_the_next() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    let path = pod_path(&pod).to_owned();
    node.add("killed", &pod);
    let points = points(&node, "DEL", "killed", &path);
    let mut killed = 0;
    for point in &points {
        node.add("killed", &pod);
        killed += usize::from(kill(&node, "DEL", "killed", &path, point));
        assert_another_can_be_added(&mut node, point);
        node.del("killed", &path);
        assert_nothing_is_left(&node, &pod, point);
    }
    assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
}
