//! Pods on containerd, run by the agent from a directory of manifests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use seaway_testbed::vm::{self, Init, Kernel, Machine, Payload, Running};
use seaway_testbed::{once_more, require_root, skip};

use super::PATIENCE;

fn machine() -> Result<Machine> {
    let mut payload = Payload::new();
    for program in ["seaway-agent", "seaway-cni"] {
        payload = payload.program(program);
    }
    payload = payload
        .file("containerd.toml", include_str!("containerd.toml"))
        .file("pods.sh", include_str!("pods.sh"));
    for phase in ["first", "ending", "starting", "damaged"] {
        payload = payload.run(phase, &format!("exec sh /seaway/files/pods.sh {phase}"));
    }
    Machine::new(Kernel::Linux6_12, Init::Script, &payload)
}

/// Switches the machine on for a phase, and waits for its runtime.
fn started(machine: &Machine, phase: &str) -> Result<Running> {
    let mut running = machine.start(phase)?;
    running.wait_line("@@power containerd answers", PATIENCE)?;
    Ok(running)
}

/// So many pods, each with an address of its own, and nothing of any other; the Service's
/// address.
fn settled(machine: &mut Running, pods: usize) -> Result<String> {
    let mut addresses = BTreeMap::new();
    while addresses.len() < pods {
        let line = machine.wait_line("@@power pod ", PATIENCE)?;
        let (pod, address) = line.split_once(' ').unwrap_or((&line, ""));
        addresses.insert(pod.to_owned(), address.to_owned());
    }
    let different: BTreeSet<_> = addresses.values().collect();
    let all_have_one = different.len() == pods && !different.contains(&String::new());
    // Ours alone, whatever the emulation does; so it is not tried again.
    assert!(all_have_one, "{addresses:?}\n{}", machine.last_lines());
    let service = machine.wait_line("@@power service ", PATIENCE)?;
    let holds = machine.wait_line("@@power holds ", PATIENCE)?;
    let all = format!("{pods} records, {pods} links, {pods} pods' containers, {pods} namespaces");
    ensure!(
        holds == all,
        "{holds}, of {pods} pods\n{}",
        machine.last_lines()
    );
    Ok(service)
}

/// The same, and the Service has kept its address.
fn settled_again(machine: &mut Running, pods: usize, service: &str) -> Result<()> {
    let now = settled(machine, pods)?;
    assert_eq!(now, service, "\n{}", machine.last_lines());
    Ok(())
}

/// Eight to ten pods (fifty take minutes under emulation; fifty without a runtime are in
/// [`super::attachments`]). The power is cut six seconds after a start, amid an end of four
/// pods, amid a start of six; then all that Seaway and libcni keep on the disk is emptied.
/// After each, what is in the directory runs, without anybody doing anything, and nothing else.
#[test]
fn case_65_pods_come_back_after_power_cuts() {
    if !require_root() {
        return;
    }
    if let Err(reason) = vm::available() {
        skip(&reason);
        return;
    }
    let mut repetitions = 2;
    while let Err(died) = story() {
        let died = format!("{died:#}");
        // The emulation of two processors does that to a kernel; one of our faults does it again.
        let is_final = repetitions == 0 || died.contains("@@power failed");
        assert!(!is_final, "{died}");
        once_more(&died);
        repetitions -= 1;
    }
}

/// Fails where a machine has died or hangs, or is not as it should be.
fn story() -> Result<()> {
    let machine = machine()?;
    let mut running = started(&machine, "first")?;
    let service = settled(&mut running, 8)?;
    running.wait_line("@@power idle", PATIENCE)?;
    drop(running);

    let mut running = started(&machine, "ending")?;
    let there = "@@power the conf of the earlier boot is there";
    running.wait_line(there, PATIENCE)?;
    settled_again(&mut running, 8, &service)?;
    let renewed = "@@power the conf was withdrawn and written again";
    running.wait_line(renewed, PATIENCE)?;
    running.wait_line("@@power some are gone", PATIENCE)?;
    drop(running);

    let mut running = started(&machine, "starting")?;
    settled_again(&mut running, 4, &service)?;
    running.wait_line("@@power some have started", PATIENCE)?;
    drop(running);

    let mut running = started(&machine, "damaged")?;
    settled(&mut running, 10)?;
    settled(&mut running, 0)?;
    let report = running.finish(PATIENCE)?;
    let status = report.outcomes.first().and_then(|outcome| outcome.status);
    ensure!(status == Some(0), "{status:?}\n{}", report.console);
    Ok(())
}
