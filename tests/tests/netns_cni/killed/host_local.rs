//! The same with the addresses of the reference plugin `host-local`, which `cargo xtask setup`
//! builds: killed are we, or it while we wait for it.

use std::path::Path;

use seaway_testbed::{require_root, skip, strace_is_missing, write_program};
use serde_json::json;

use super::Victim;
use super::points::{Point, kill_at, points};
use crate::node::{Node, failure};

/// Stands for `host-local`: runs it under strace, with the options of a file if there is one.
const SCRIPT: &str = r#"#!/bin/sh
if [ "$CNI_COMMAND" = ADD ] && [ -f "$0.options" ]; then
    exec strace -f $(cat "$0.options") PROGRAM
fi
exec PROGRAM
"#;
/// What its reservations change with.
const ITS_OWN: [&str; 6] = [
    "openat",
    "write",
    "flock",
    "renameat",
    "unlinkat",
    "exit_group",
];

fn victim() -> Option<Victim> {
    let bin = seaway_testbed::cache_dir().join("bin");
    if !require_root() || strace_is_missing() {
        return None;
    }
    if !bin.join("host-local").is_file() {
        skip("needs the reference plugin host-local");
        return None;
    }
    let mut node = Node::new("10.244.1.0/24");
    node.conf["dataDir"] = json!(node.dir.path().join("cni"));
    node.conf["ipam"] = json!({
        "type": "host-local", "dataDir": node.dir.path().join("theirs"),
        "ranges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd08::/64"}]],
    });
    node.cni_path = bin;
    Some(Victim::of(node, false))
}

/// Addresses that it has reserved.
fn reserved(node: &Node) -> Vec<String> {
    let entries = std::fs::read_dir(node.dir.path().join("theirs/seaway")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name != "lock" && !name.starts_with("last_reserved"))
        .collect()
}

#[track_caller]
fn assert_none_is_reserved(node: &Node, point: &Point) {
    assert_eq!(reserved(node), [""; 0], "{point:?}");
}

#[test]
fn case_29_56_add_killed_with_host_local_is_cleaned_by_del() {
    if let Some(mut victim) = victim() {
        victim.kill_adds(assert_none_is_reserved);
    }
}

#[test]
fn case_29_56_del_killed_with_host_local_is_completed_by_the_next() {
    if let Some(mut victim) = victim() {
        victim.kill_dels(assert_none_is_reserved);
    }
}

fn write_script(node: &mut Node) {
    let dir = node.dir.path().join("bin");
    std::fs::create_dir(&dir).unwrap();
    let program = node.cni_path.join("host-local");
    let script = SCRIPT.replace("PROGRAM", program.to_str().unwrap());
    write_program(&dir.join("host-local"), &script);
    node.cni_path = dir;
}

/// Where a run of it changes something.
fn its_points(victim: &Victim, options: &Path) -> Vec<Point> {
    let log = victim.node.dir.path().join("trace");
    std::fs::write(options, format!("-o {}", log.display())).unwrap();
    victim.node.add("killed", &victim.pod);
    victim.node.del("killed", "");
    points(&log, true, |name, rest| match name {
        "openat" => rest.contains("O_CREAT"),
        _ => ITS_OWN.contains(&name),
    })
}

/// What it has reserved and not written down whose it is may be lost to it; our part is that
/// the ADD fails, leaves nothing of ours, and that nobody gets what another pod has.
#[test]
fn case_29_56_an_add_whose_host_local_is_killed_leaves_nothing() {
    let Some(mut victim) = victim() else {
        return;
    };
    write_script(&mut victim.node);
    let options = victim.node.cni_path.join("host-local.options");
    let points = its_points(&victim, &options);
    assert!(points.len() > 5, "{points:?}");
    let mut killed = 0;
    for point in &points {
        let kill = kill_at(point).join(" ");
        std::fs::write(&options, format!("-o /dev/null {kill}")).unwrap();
        let output = victim.node.call("ADD", "killed", victim.path());
        std::fs::remove_file(&options).unwrap();
        if output.status.success() {
            // It is of several threads, which take turns.
            victim.node.del("killed", "");
            continue;
        }
        killed += 1;
        let error = failure(&output).to_string();
        assert!(error.contains("host-local"), "{point:?}: {error}");
        victim.assert_nothing_is_left(point);
        victim.assert_another_can_be_added(point);
        victim.node.del("killed", "");
        victim.assert_nothing_is_left(point);
    }
    assert!(killed * 2 >= points.len(), "{killed} of {points:?}");
}
