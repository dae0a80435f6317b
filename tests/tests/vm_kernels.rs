//! The kernel suites and the demo on the kernels of Debian 12 and 13.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use seaway_testbed::vm::{self, Kernel, Payload};
use seaway_testbed::{require_root, skip};

/// Software emulation is slow, and the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(15);

/// Tests, by a part of their names, that are not run, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    (
        "killed::",
        "hundreds of runs under strace take minutes under emulation",
    ),
    (
        "scale::",
        "thousands of Services take minutes under emulation, and its times say nothing",
    ),
    (
        "flows::",
        "the whole table takes ten minutes under emulation; passage and traffic are run",
    ),
];

fn kernel_suites_and_demo(kernel: Kernel) {
    if !require_root() {
        return;
    }
    if let Err(reason) = vm::available() {
        skip(&reason);
        return;
    }
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
        let run = format!("exec /seaway/tests/{name} {flags}");
        payload = payload.test(&name, &path).run(&name, &run);
    }
    payload = payload.run("demo", "exec /seaway/bin/xtask demo --no-setup");
    let report = vm::run(kernel, &payload, PATIENCE).unwrap();
    let mut failed = Vec::new();
    for outcome in &report.outcomes {
        let (name, status, time) = (&outcome.name, outcome.status, outcome.time.as_secs());
        eprintln!("{kernel:?}: {name}: {status:?} in {time} s");
        if outcome.status != Some(0) {
            failed.push(outcome.name.as_str());
            eprintln!("{}", outcome.output);
        }
    }
    eprintln!("{kernel:?}: started {} times", report.boots);
    assert!(
        failed.is_empty() && report.outcomes.len() > 1,
        "failed: {failed:?}"
    );
}

#[test]
fn kernel_suites_and_demo_on_6_1() {
    kernel_suites_and_demo(Kernel::Linux6_1);
}

#[test]
fn kernel_suites_and_demo_on_6_12() {
    kernel_suites_and_demo(Kernel::Linux6_12);
}
