//! Attachments without a runtime: the plugin is called as a runtime would call it.

use std::collections::{BTreeMap, BTreeSet};

use seaway_testbed::vm::{self, Init, Kernel, Machine, Payload, Running};
use seaway_testbed::{require_root, skip};

use super::PATIENCE;

const PODS: usize = 50;
/// The power is cut when so many pods have been seen to come, or to go.
const SOME: usize = 20;

/// Which address each pod has.
type Addresses = BTreeMap<String, String>;

/// Waits for one line of each of so many pods.
fn see(machine: &mut Running, verb: &str, pods: usize) -> Addresses {
    let mut seen = Addresses::new();
    while seen.len() < pods {
        let line = machine.wait_line(&format!("@@power {verb} "), PATIENCE);
        let line = line.unwrap();
        let (pod, address) = line.split_once(' ').unwrap_or((&line, ""));
        assert_eq!(seen.insert(pod.to_owned(), address.to_owned()), None);
    }
    seen
}

fn all_different(addresses: &Addresses) {
    let different: BTreeSet<_> = addresses.values().collect();
    assert_eq!(different.len(), addresses.len(), "{addresses:?}");
}

/// A pod that was told its address once has it again.
fn kept(before: &Addresses, after: &Addresses) {
    let moved: Vec<_> = before
        .iter()
        .filter(|(pod, address)| after.get(*pod) != Some(*address))
        .map(|(pod, address)| (pod, address, after.get(pod)))
        .collect();
    assert!(moved.is_empty(), "pod, before, after: {moved:?}");
}

fn holds(machine: &mut Running, pods: usize) {
    let counted = machine.wait_line("@@power holds ", PATIENCE).unwrap();
    let expected = format!("{pods} records in 1 boots, {pods} links, {pods} routes");
    assert_eq!(counted, expected);
}

/// Fifty pods that get their addresses at once, four at a time; the power is cut amid the
/// ADDs, while nothing happens, and amid the DELs. Each ADD that was reported before a cut
/// is kept by the boot after it.
fn power_is_cut(kernel: Kernel) {
    if !require_root() {
        return;
    }
    if let Err(reason) = vm::available() {
        skip(&reason);
        return;
    }
    let mut payload = Payload::new()
        .program("seaway-cni")
        .file("one.sh", include_str!("one.sh"));
    payload = payload.file("attachments.sh", include_str!("attachments.sh"));
    for phase in ["adding", "idle", "deleting", "damaged"] {
        let run = format!("exec sh /seaway/files/attachments.sh {phase}");
        payload = payload.run(phase, &run);
    }
    let machine = Machine::new(kernel, Init::Script, &payload).unwrap();

    let mut running = machine.start("adding").unwrap();
    let first = see(&mut running, "ADD", SOME);
    all_different(&first);
    let console = running.cut_power();
    assert!(!console.contains("all added"), "the cut came too late");

    let mut running = machine.start("idle").unwrap();
    let all = see(&mut running, "ADD", PODS);
    all_different(&all);
    kept(&first, &all);
    holds(&mut running, PODS);
    assert!(!running.cut_power().contains("@@power failed"));

    let mut running = machine.start("deleting").unwrap();
    let again = see(&mut running, "ADD", PODS);
    assert_eq!(again, all);
    see(&mut running, "DEL", SOME);
    assert!(!running.cut_power().contains("@@power failed"));

    let mut running = machine.start("damaged").unwrap();
    assert_eq!(see(&mut running, "ADD", PODS), all);
    holds(&mut running, PODS);
    see(&mut running, "DEL", PODS);
    holds(&mut running, 0);
    let report = running.finish(PATIENCE).unwrap();
    assert_eq!(report.outcomes[0].status, Some(0), "{}", report.console);
}

#[test]
fn case_65_fifty_attachments_outlive_power_cuts_on_6_1() {
    power_is_cut(Kernel::Linux6_1);
}
