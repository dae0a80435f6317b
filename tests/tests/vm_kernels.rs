//! The kernel suites and the demo on the kernels of Debian 12 and 13.
//!
//! `SEAWAY_VM_SUITES`, words between blanks, chooses the suites that have one of them in their
//! names (the demo is one), for who works on one and cannot wait for all.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use seaway_testbed::vm::{self, Kernel, Outcome, Payload, Report};
use seaway_testbed::{once_more, require_root, short_or_long, skip};

/// Software emulation is slow, and the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(50);

/// More suites that fail are no accident.
const MOST_AGAIN: usize = 3;

/// Suites that are not run, and why.
const SUITES_LEFT_OUT: [(&str, &str); 5] = [
    (
        "netns_bench",
        "its times say nothing under emulation, and its peers are not in the machine",
    ),
    (
        "netns_install",
        "two minutes about files, which are the same on every kernel",
    ),
    (
        "netns_proxy_daemon",
        "six minutes, most of them waiting; the backends and the pod network run by themselves",
    ),
    (
        "netns_cni_upkeep",
        "four minutes about records and rules, whose reading and writing other suites show",
    ),
    (
        "netns_cni_rtnl",
        "a minute of waiting for a lock that the test itself holds",
    ),
];

/// Of suites that take minutes: the parts that are about what the kernel does, each on one of
/// these kernels, and on both where `SEAWAY_LONG` is set. All of each runs on the kernel of the
/// machine itself.
const IN_PART: [(&str, Kernel, &str); 7] = [
    // The verifier of each kernel has to take the programs.
    (
        "bpf_socket",
        Kernel::Linux6_1,
        "every_program_loads links_ removal_ a_restart_adopts traffic::",
    ),
    (
        "bpf_socket",
        Kernel::Linux6_12,
        "lifecycle:: setup:: traffic::tcp_",
    ),
    ("netns_cni", Kernel::Linux6_1, "add:: dual:: kernel::"),
    (
        "netns_cni",
        Kernel::Linux6_12,
        "capabilities:: hostports:: sctp::",
    ),
    (
        "netns_iptables",
        Kernel::Linux6_1,
        "traffic::a_ udp::a_restart udp::a_udp_client_follows",
    ),
    (
        "netns_iptables",
        Kernel::Linux6_12,
        "associations:: passage:: sctp::",
    ),
    ("netns_podnet", Kernel::Linux6_1, "checksums:: overlay::"),
];

/// Tests of the others, by a part of their names, that are not run, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    (
        "scale::",
        "thousands of Services take minutes under emulation, and its times say nothing",
    ),
    (
        "rules::damage_is_found_and_repaired",
        "hundreds of calls of iptables take minutes under emulation",
    ),
    (
        "rules::what_is_read_back_is_what_was_written",
        "hundreds of calls of iptables take minutes under emulation",
    ),
    (
        "case_67_bandwidth_is_limited_both_ways",
        "what is to be limited does not reach the limit under emulation",
    ),
    (
        "case_16_no_address_is_tentative",
        "the tenth of a second that it grants an ADD is too short under emulation",
    ),
];

/// The parts of a suite that run on this kernel, or nothing if all do; none if none does.
fn parts(suite: &str, kernel: Kernel) -> Option<String> {
    let told = IN_PART.iter().filter(|(name, ..)| *name == suite);
    let mut told = told.peekable();
    if told.peek().is_none() {
        return Some(String::new());
    }
    let here = told.filter(|(_, on, _)| short_or_long(kernel == *on, true));
    let parts: Vec<&str> = here.map(|(.., parts)| *parts).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// What a test may say in the machine that it lacks; they all run outside of it.
const NOT_IN_THE_MACHINE: [&str; 3] = [
    "cargo xtask setup",
    "needs strace",
    "needs the reference plugin",
];

/// Those whose names `chosen` wants.
fn suites_and_demo(kernel: Kernel, chosen: impl Fn(&str) -> bool) -> Payload {
    let mut payload = Payload::new();
    for program in [
        "seaway-agent",
        "seaway-cni",
        "seaway-peer",
        "seaway-proxy",
        "xtask",
    ] {
        payload = payload.program(program);
    }
    let mut flags = "--test-threads=4 --color=never".to_owned(); // they wait more than they work
    for (tests, why) in LEFT_OUT {
        eprintln!("{kernel:?}: without {tests}: {why}");
        flags = format!("{flags} --skip {tests}");
    }
    for (name, path) in vm::suites(&["netns_", "bpf_"]).unwrap() {
        if !chosen(&name) {
            continue;
        }
        if let Some((_, why)) = SUITES_LEFT_OUT.iter().find(|(suite, _)| *suite == name) {
            eprintln!("{kernel:?}: without {name}: {why}");
            continue;
        }
        let Some(parts) = parts(&name, kernel) else {
            eprintln!("{kernel:?}: without {name}: it takes minutes, and runs on the other");
            continue;
        };
        if !parts.is_empty() {
            eprintln!("{kernel:?}: of {name} {parts}");
        }
        let run = format!(
            "export SEAWAY_SKIP_LOG=/run/{name}.skips\n\
             /seaway/tests/{name} {flags} {parts}; status=$?\n\
             cat $SEAWAY_SKIP_LOG 2> /dev/null\n\
             exit $status"
        );
        payload = payload.test(&name, &path).run(&name, &run);
    }
    if chosen("demo") {
        payload = payload.run("demo", "exec /seaway/bin/xtask demo --no-setup");
    }
    payload
}

/// Whether all is well; where `CI` is set, nothing may have been skipped that could have run.
fn passed(outcome: &Outcome) -> bool {
    let lines = || outcome.output.lines();
    let skipped = lines().filter(|line| line.starts_with("SKIPPED "));
    let skipped: Vec<&str> = skipped.collect();
    for line in &skipped {
        eprintln!("{}: {line}", outcome.name);
    }
    let is_known = |line: &&str| NOT_IN_THE_MACHINE.iter().any(|what| line.contains(what));
    let all_known = skipped.iter().all(is_known);
    // A program that ends too early has no such line, whatever its status is.
    let told = outcome.name == "demo" || lines().any(|line| line.starts_with("test result: ok. "));
    let in_ci = std::env::var_os("CI").is_some();
    outcome.status == Some(0) && told && (all_known || !in_ci)
}

fn chosen(suite: &str) -> bool {
    let words = std::env::var("SEAWAY_VM_SUITES").unwrap_or_default();
    words.is_empty() || words.split_whitespace().any(|word| suite.contains(word))
}

/// Whether every command has run to its end. Of those after a machine's death there is no word.
fn has_ended(payload: &Payload, report: &Report) -> bool {
    let ended = report.outcomes.iter().filter(|o| o.status.is_some());
    ended.count() == payload.runs()
}

fn kernel_suites_and_demo(kernel: Kernel) {
    if !require_root() {
        return;
    }
    if let Err(reason) = vm::available() {
        skip(&reason);
        return;
    }
    let mut failed = failing(kernel, chosen);
    // Waiting that ended too early beside another machine; one of our faults does it again, but
    // for one that takes what an earlier suite has left behind.
    if (1..=MOST_AGAIN).contains(&failed.len()) {
        once_more(&format!("{kernel:?}: {failed:?}"));
        failed = failing(kernel, |suite| failed.iter().any(|name| name == suite));
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Runs the suites that are chosen in a machine; gives the names of those that have failed.
fn failing(kernel: Kernel, chosen: impl Fn(&str) -> bool) -> Vec<String> {
    let payload = suites_and_demo(kernel, chosen);
    assert!(payload.runs() > 0, "SEAWAY_VM_SUITES chooses none");
    let mut report = vm::run(kernel, &payload, PATIENCE).unwrap();
    if !has_ended(&payload, &report) {
        // The emulation of two processors does that to a kernel; one of our faults does it again.
        eprintln!("{kernel:?} died: once more\n{}", report.console);
        report = vm::run(kernel, &payload, PATIENCE).unwrap();
    }
    let mut failed = Vec::new();
    for outcome in &report.outcomes {
        let (name, status, time) = (&outcome.name, outcome.status, outcome.time.as_secs());
        eprintln!("{kernel:?}: {name}: {status:?} in {time} s");
        if !passed(outcome) {
            failed.push(outcome.name.clone());
            eprintln!("{}", outcome.output);
        }
    }
    eprintln!("{kernel:?}: started {} times", report.boots);
    assert!(has_ended(&payload, &report), "{}", report.console);
    failed
}

#[test]
fn kernel_suites_and_demo_on_6_1() {
    kernel_suites_and_demo(Kernel::Linux6_1);
}

#[test]
fn kernel_suites_and_demo_on_6_12() {
    kernel_suites_and_demo(Kernel::Linux6_12);
}
