//! Beside the network services of a distribution: NetworkManager, systemd-networkd, firewalld.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use seaway_testbed::vm::{self, Init, Kernel, Machine, Payload};
use seaway_testbed::{require_root, short_or_long, skip};

/// Software emulation is slow, and the machine may be busy.
fn patience() -> Duration {
    Duration::from_mins(short_or_long(30, 40))
}

/// Runs a script on a machine of its own with systemd.
fn on_a_machine(name: &str, script: &str) {
    if !require_root() {
        return;
    }
    if let Err(reason) = vm::available() {
        skip(&reason);
        return;
    }
    let mut payload = Payload::new();
    for program in ["seaway-agent", "seaway-cni", "seaway-proxy"] {
        payload = payload.program(program);
    }
    payload = payload
        .file("lib.sh", include_str!("vm_services/lib.sh"))
        .run(name, &format!("LASTING={}\n{script}", short_or_long(3, 60)));
    let machine = Machine::new(Kernel::Linux6_12, Init::Systemd, &payload).unwrap();
    let report = machine.start(name).unwrap().finish(patience()).unwrap();
    let outcome = &report.outcomes[0];
    eprintln!("{}", outcome.output);
    assert_eq!(outcome.status, Some(0));
}

/// With the daemon, the overlay and probed paths beside `systemd-networkd`, direct routes beside
/// `NetworkManager`. Links, addresses, MACs and neighbours of ours never go; routes and rules are
/// all there again 5 s (five times that, emulated) after the uplink is, and stay. What a restart of `systemd-networkd` takes,
/// with and without our settings, is looked at while the daemon is stopped.
#[test]
fn case_62_nothing_is_lost_beside_networkmanager_and_networkd() {
    on_a_machine("coexist", include_str!("vm_services/coexist.sh"));
}

/// With `seaway-agent standalone`, which runs the proxy: a hostPort from outside, from a pod and
/// by 127.0.0.1, and a pod's way out, through reloads, a restart, and flushes by nft and iptables.
#[test]
fn case_64_host_ports_and_masquerade_return_after_firewalld() {
    on_a_machine("firewalld", include_str!("vm_services/firewalld.sh"));
}
