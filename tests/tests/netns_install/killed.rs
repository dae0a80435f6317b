//! An install, and a conf being written, killed at every step.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use seaway_testbed::{require_root, strace_is_missing, wait_until};
use serde_json::Value;

use crate::daemon::{API, CONF, Node};
use crate::disk::{Disk, names, said};
use crate::status::node as node_object;
use seaway_testbed::fake_api::{FakeApi, NODES};

/// Those that change something; `openat` counts when it creates.
const CHANGING: &[&str] = &[
    "openat",
    "write",
    "fchmod",
    "fsync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "symlink",
    "mkdir",
    "flock",
    "exit_group",
];
const PATIENCE: Duration = Duration::from_secs(30);
const FOREIGN: &str = "{\"name\":\"other\"}";
const OURS: &str = "{\"name\":\"seaway\"}";
const FLAGS: &[&str] = &["--loopback", "--take-over-conf", "10-other.conflist"];

/// The installer under strace. Only its main thread touches files, so only that is followed.
fn traced(disk: &Disk, options: &[&str]) -> std::process::Output {
    let plain = disk.command(&disk.install_words("new"));
    let mut command = Command::new("strace");
    command.args(options).arg(plain.get_program());
    command.args(plain.get_args()).args(FLAGS);
    command.output().unwrap()
}

/// An earlier version is installed, a foreign network and ours have confs.
fn before(disk: &Disk) {
    for folder in ["bin", "net.d"] {
        fs::remove_dir_all(disk.path(folder)).ok();
    }
    disk.install("old", &[]);
    disk.write("net.d/05-seaway.conflist", OURS);
    disk.write("net.d/10-other.conflist", FOREIGN);
}

/// The k-th call of a system call, for all that change something.
fn points(disk: &Disk) -> Vec<(String, usize)> {
    let log = disk.path("trace");
    let set = format!("trace={}", CHANGING.join(","));
    let output = traced(disk, &["-e", &set, "-o", log.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let mut counts = std::collections::BTreeMap::new();
    let mut points = Vec::new();
    for line in fs::read_to_string(&log).unwrap().lines() {
        let Some((name, rest)) = line.split_once('(') else {
            continue;
        };
        let count: &mut usize = counts.entry(name.to_owned()).or_default();
        *count += 1;
        if CHANGING.contains(&name) && (name != "openat" || rest.contains("O_CREAT")) {
            points.push((name.to_owned(), *count));
        }
    }
    points
}

/// A name that no runtime calls or loads.
fn is_half_written(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) && Path::new(name).extension() == Some(OsStr::new("tmp"))
}

/// Everything is as before or as after; nothing can be taken for more than it is.
#[track_caller]
fn assert_whole(disk: &Disk, point: &(String, usize)) {
    for (name, what) in disk.plugins() {
        match name.as_str() {
            "seaway-cni" | "loopback" => assert_ne!(what, "neither", "{point:?}: {name}"),
            half => assert!(
                is_half_written(half, ".seaway-install-"),
                "{point:?}: {half}"
            ),
        }
    }
    assert!(disk.path("bin/seaway-cni").is_file(), "{point:?}");
    let confs = names(&disk.path("net.d"));
    let confs: Vec<&str> = confs.iter().map(String::as_str).collect();
    let (ours, aside) = ("05-seaway.conflist", "10-other.conflist.seaway-disabled");
    assert!(
        confs == [ours, "10-other.conflist"] || confs == [ours, aside],
        "{point:?}: {confs:?}"
    );
    assert_eq!(
        fs::read_to_string(disk.path("net.d").join(confs[0])).unwrap(),
        OURS
    );
    assert_eq!(
        fs::read_to_string(disk.path("net.d").join(confs[1])).unwrap(),
        FOREIGN
    );
}

#[test]
fn case_60_an_install_killed_at_every_step_leaves_the_old_or_the_new_plugin() {
    if strace_is_missing() {
        return;
    }
    let disk = Disk::new();
    before(&disk);
    let points = points(&disk);
    let mut killed = 0;
    for point in &points {
        before(&disk);
        let (name, count) = point;
        let trace = format!("trace={name}");
        let inject = format!("inject={name}:signal=KILL:when={count}");
        let output = traced(&disk, &["-e", &trace, "-e", &inject, "-o", "/dev/null"]);
        killed += usize::from(!output.status.success());
        assert_whole(&disk, point);
        // The next one completes it, and sweeps.
        disk.install("new", FLAGS);
        let expect = [("loopback", "new"), ("seaway-cni", "new")];
        assert_eq!(
            disk.plugins(),
            expect.map(|(name, what)| (name.to_owned(), what)).into(),
            "{point:?}"
        );
        assert!(!disk.path("net.d/10-other.conflist").exists(), "{point:?}");
    }
    for step in ["fchmod", "fsync", "symlink", "rename"] {
        let met = points.iter().any(|(name, _)| name.starts_with(step));
        assert!(met, "{step} is not in {points:?}");
    }
    assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
}

/// Another MTU makes another conf, so each start writes.
#[test]
fn case_60_a_conf_is_old_or_new_whenever_its_writer_is_killed() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    api.apply(NODES, node_object("a", "172.30.0.11", "10.244.0.0/24"));
    let mtu = || {
        let conf: Value = serde_json::from_slice(&fs::read(node.path(CONF)).unwrap()).unwrap();
        conf["plugins"][0]["mtu"].as_u64().unwrap()
    };
    let restart = |mtu_wanted: u64| {
        let flag = mtu_wanted.to_string();
        let flags = ["--cluster-cidr", "10.244.0.0/16", "--mtu", &flag];
        let daemon = node.start_with("off", &flags);
        daemon.wait("the conf", || {
            node.path(CONF).exists() && mtu() == mtu_wanted
        });
        assert!(daemon.terminate().success());
        assert_eq!(names(&node.path("net.d")), ["05-seaway.conflist"]);
    };
    let (mut old, mut killed) = (0, 0);
    for step in ["rename,renameat,renameat2", "fsync"] {
        // The state and the conf; the mark of the boot stays as it is.
        for count in 1..=2 {
            restart(1400);
            killed += usize::from(run_killed(&node, step, count, || mtu() == 1300));
            old += usize::from(mtu() == 1400);
            for name in names(&node.path("net.d")) {
                let half = is_half_written(&name, ".seaway-");
                assert!(
                    half || name == "05-seaway.conflist",
                    "{step} {count}: {name}"
                );
            }
            restart(1300);
        }
    }
    assert_eq!((killed, old), (4, 4));
}

/// The daemon with another MTU, killed at a step; false if it wrote its conf.
fn run_killed(node: &Node, step: &str, count: usize, written: impl Fn() -> bool) -> bool {
    let plain = node.command("run");
    let mut command = node.netns.command("strace");
    command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let (trace, inject) = (
        format!("trace={step}"),
        format!("inject={step}:signal=KILL:when={count}"),
    );
    command.args(["-f", "-e", &trace, "-e", &inject, "-o", "/dev/null"]);
    command.arg(plain.get_program()).args(plain.get_args());
    command.arg("--kubeconfig").arg(node.path("kubeconfig"));
    command.args(["--node-name", "a", "--service-proxy", "off"]);
    command.args(["--cluster-cidr", "10.244.0.0/16", "--mtu", "1300"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let ended = wait_until(PATIENCE, "its end, or its conf", || {
        if child.try_wait()?.is_some() {
            return Ok(Ok(true));
        }
        Ok(if written() {
            Ok(false)
        } else {
            Err(String::new())
        })
    });
    // What strace has started goes with the namespace, if it is not gone already.
    child.kill().ok();
    child.wait().unwrap();
    ended.unwrap()
}
