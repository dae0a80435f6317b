//! The plugin is replaced while the runtime calls it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use seaway_testbed::{Netns, require_root};

use crate::cni::{Node, addresses, pod_path, start, success, text};
use crate::disk::Disk;

const PODS: usize = 50;

#[test]
fn case_60_the_plugin_is_replaced_under_load_and_no_call_is_lost() {
    if !require_root() {
        return;
    }
    let disk = Disk::new();
    disk.install("old", &[]);
    let mut node = Node::new("10.244.1.0/24");
    node.program = disk.path("bin/seaway-cni");
    let pods: Vec<Netns> = (0..PODS).map(|_| Netns::new("pod")).collect();
    let (stop, upgrades) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for version in ["new", "old"] {
                    disk.install(version, &["--host-config", "off"]);
                    upgrades.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // Also when a call fails: the scope waits for the other thread.
        let _stop = Stop(&stop);
        for _ in 0..2 {
            let calls = |verb: &str| -> Vec<Child> {
                let call = |(n, pod): (usize, &Netns)| {
                    start(
                        node.command(verb, &format!("c{n}"), pod_path(pod)),
                        &node.conf,
                    )
                };
                pods.iter().enumerate().map(call).collect()
            };
            let mut given = Vec::new();
            for call in calls("ADD") {
                given.extend(addresses(&success(&call.wait_with_output().unwrap())));
            }
            given.sort();
            given.dedup();
            assert_eq!(given.len(), PODS);
            for call in calls("DEL") {
                let output = call.wait_with_output().unwrap();
                assert!(output.status.success(), "{}", text(&output));
            }
        }
    });
    node.assert_empty();
    let upgrades = upgrades.into_inner();
    assert!(upgrades >= 4, "only {upgrades} upgrades under load");
    assert_eq!(crate::disk::names(&disk.path("bin")), ["seaway-cni"]);
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_same_plugin_is_not_written_again() {
    let disk = Disk::new();
    let path = disk.path("bin/seaway-cni");
    assert!(
        disk.install("old", &[])
            .contains("Installed the CNI plugin")
    );
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o755);
    assert!(disk.install("old", &[]).contains("is installed already"));
    assert_eq!(fs::metadata(&path).unwrap().ino(), meta.ino());
    disk.install("new", &[]);
    assert_ne!(fs::metadata(&path).unwrap().ino(), meta.ino());
    // What others have there is none of ours.
    disk.write("bin/bridge", "x");
    disk.install("old", &[]);
    assert_eq!(
        crate::disk::names(&disk.path("bin")),
        ["bridge", "seaway-cni"]
    );
}

/// Two init containers, or one that a person runs beside it.
#[test]
fn installs_at_the_same_time_wait_for_each_other() {
    let disk = Disk::new();
    let installs: Vec<Child> = (0..8)
        .map(|n| {
            let words = disk.install_words(["old", "new"][n % 2]);
            disk.command(&words).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for install in installs {
        let output = install.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", crate::disk::said(&output));
    }
    let plugins = disk.plugins();
    assert_eq!(plugins.len(), 1, "{plugins:?}");
    assert_ne!(plugins["seaway-cni"], "neither");
}

/// Bug row 38: containerd starts no pod without a plugin of this name.
#[test]
fn loopback_is_served_where_nobody_does() {
    if !require_root() {
        return;
    }
    let disk = Disk::new();
    let said = disk.install("old", &[]);
    assert!(
        said.contains("WARN") && said.contains("No loopback plugin"),
        "{said}"
    );
    let said = disk.install("old", &["--loopback"]);
    assert!(!said.contains("WARN"), "{said}");
    disk.install("new", &["--loopback"]);
    assert_eq!(
        fs::read_link(disk.path("bin/loopback")).unwrap().to_str(),
        Some("seaway-cni")
    );
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.program = disk.path("bin/loopback");
    pod.ip("link set lo down");
    success(&node.call("ADD", "c1", pod_path(&pod)));
    assert!(pod.ip("link show lo").contains("UP"));
    fs::remove_file(disk.path("bin/loopback")).unwrap();
    disk.write("bin/loopback", "foreign");
    let said = disk.install("new", &["--loopback"]);
    assert!(said.contains("Left the loopback plugin"), "{said}");
    assert_eq!(
        fs::read_to_string(disk.path("bin/loopback")).unwrap(),
        "foreign"
    );
}
