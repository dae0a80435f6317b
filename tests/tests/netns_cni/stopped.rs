//! A call that stands still while it holds what others need.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seaway_testbed::{Netns, require_root, strace_is_missing, wait_until};
use serde_json::Value;

use crate::node::{Node, pod_path, start, text};
use crate::trace::{lines, start_traced};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// An ADD that has stopped with the records locked; killed with its guard.
struct Holder {
    strace: Child,
    pid: Pid,
}

impl Holder {
    #[allow(
        clippy::disallowed_methods,
        reason = "nothing tells that a process does not go on"
    )]
    fn start(node: &Node, pod: &Netns) -> Self {
        // Which of its locks that is, another ADD tells.
        let other = Netns::new("other");
        let locks = lines(node, "ADD", "other", pod_path(&other), "fcntl");
        let of_records = locks.iter().filter(|line| line.contains(" fcntl("));
        let place = of_records.clone().position(|line| line.contains("/lock>"));
        let place = place.unwrap_or_else(|| panic!("{locks:#?}")) + 1;
        node.del("other", pod_path(&other));

        let stop = format!("inject=fcntl:signal=SIGSTOP:when={place}");
        let strace = start_traced(
            node,
            "ADD",
            "holder",
            pod_path(pod),
            &["-e", &stop, "-o", "/dev/null"],
        );
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        let mut before = String::new();
        let stopped = || {
            // strace has other children for a moment, to see what ptrace can do.
            let child = std::fs::read_to_string(&children).unwrap_or_default();
            let stat = format!("/proc/{}/stat", child.trim());
            let Ok(state) = std::fs::read_to_string(stat) else {
                return Ok(Err(format!("children: {child:?}")));
            };
            // A traced call stops at every call that is looked at; this one stays so.
            let is_stopped = state.contains(") t ") || state.contains(") T ");
            let stays = is_stopped && before == state;
            before = state;
            std::thread::sleep(LOOK_AGAIN);
            Ok(if stays {
                Ok(Pid::from_raw(child.trim().parse()?))
            } else {
                Err(before.clone())
            })
        };
        let pid = wait_until(Duration::from_secs(20), "the holder to stop", stopped).unwrap();
        Self { strace, pid }
    }

    fn kill(mut self) {
        kill(self.pid, Signal::SIGKILL).unwrap();
        self.strace.wait().unwrap();
    }
}

#[test]
fn case_52_who_waits_for_a_stopped_call_is_told_so_in_time() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pods: Vec<Netns> = (0..4).map(|_| Netns::new("pod")).collect();
    let holder = Holder::start(&node, &pods[0]);
    let add = |n: usize| {
        start(
            node.command("ADD", &format!("c{n}"), pod_path(&pods[n])),
            &node.conf,
        )
    };
    let started = Instant::now();
    for call in [add(1), add(2)] {
        let output = call.wait_with_output().unwrap();
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["code"], 11, "{}", text(&output));
    }
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_secs(30) && waited < Duration::from_mins(1),
        "{waited:?}"
    );
    assert_eq!(node.records(), [""; 0]);

    let waiting = add(3);
    let killed = Instant::now();
    holder.kill();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(killed.elapsed() < Duration::from_secs(10));
    for id in ["holder", "c1", "c2", "c3"] {
        node.del(id, "");
    }
    node.assert_empty();
}
