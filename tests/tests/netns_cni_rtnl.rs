//! seaway-cni while the kernel does not answer. A binary of its own, since the
//! whole machine waits: no other test may run beside it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "shared with the netns_cni suite")]
#[path = "netns_cni/node.rs"]
mod node;

use std::process::Output;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use node::{Node, addresses, assert_reaches, failure, feed, pod_path, start, success, text};
use seaway_testbed::rtnl::HeldRtnl;
use seaway_testbed::{Netns, require_root, short_or_long, skip, strace_is_missing};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

#[test]
fn case_34_a_held_rtnl_lock_is_waited_for() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let held = match node.netns.enter(HeldRtnl::take) {
        Ok(held) => held,
        Err(error) => return skip(&format!("needs userfaultfd: {error}")),
    };
    let (sender, receiver) = mpsc::channel();
    let call = start(node.command("ADD", "c1", pod_path(&pod)), &node.conf);
    std::thread::spawn(move || drop(sender.send(call.wait_with_output())));
    let early = receiver.recv_timeout(Duration::from_secs(5));
    assert!(early.is_err(), "nothing can be changed: {early:?}");
    drop(held);
    let output = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    for address in addresses(&success(&output.unwrap())) {
        assert_reaches(&node.netns, &address);
    }
    node.del("c1", "");
    node.assert_empty();
}

/// The plugin under strace, which changes one kind of system call.
fn injected(node: &Node, pod: &Netns, inject: &str) -> Output {
    let plain = node.command("ADD", "c1", pod_path(pod));
    let mut command = node.netns.command("strace");
    command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let inject = format!("inject={inject}");
    command.args(["-f", "-e", &inject, "-o", "/dev/null"]);
    command.arg(&node.program);
    feed(command, &node.conf)
}

/// What a receive timeout looks like, at each reply; waiting for it would take
/// half a minute each.
#[test]
fn case_34_an_answer_that_does_not_come_is_code_11_and_leaves_nothing() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let mut failed = 0;
    for count in 1..=12 {
        let output = injected(&node, &pod, &format!("recvmsg:error=EAGAIN:when={count}"));
        if output.status.success() {
            // Beyond the last one, or one that can be done without.
            node.del("c1", "");
        } else {
            let error = failure(&output);
            assert_eq!(error["code"], 11, "{}", text(&output));
            let details = error["details"].as_str().unwrap();
            assert!(
                details.contains("no reply from the kernel within"),
                "{error}"
            );
            // The operation and its object.
            assert!(details.split(' ').count() > 8, "{error}");
            failed += 1;
        }
        assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1, "{count}");
        node.assert_empty();
    }
    // So many sends an ADD has: of each only the last answer is waited for.
    assert!(failed >= 5, "{failed}");
}

/// A send that takes as long as that ends in a failed ADD, of which nothing is left. Without
/// `SEAWAY_LONG` it is one of two seconds, which an ADD has to bear.
#[test]
fn case_34_a_lock_that_is_held_for_two_minutes_is_code_11() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let (seconds, start) = (short_or_long(2, 121), Instant::now());
    let output = injected(
        &node,
        &pod,
        &format!("sendto:delay_enter={seconds}s:when=1"),
    );
    assert!(start.elapsed() >= Duration::from_secs(seconds));
    if seconds > 120 {
        let error = failure(&output);
        assert_eq!(error["code"], 11, "{error}");
        let message = error["msg"].as_str().unwrap();
        assert!(message.contains("longer than runtimes wait"), "{error}");
    } else {
        eprintln!("Two minutes are waited where SEAWAY_LONG is set; this was {seconds} s");
        for address in addresses(&success(&output)) {
            assert_reaches(&node.netns, &address);
        }
        node.del("c1", "");
    }
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    node.assert_empty();
}
