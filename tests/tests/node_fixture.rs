//! The node fixture's own promises, without our agent: containerd works in a place of its
//! own, and all of it goes.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;

use seaway_testbed::node::{Config, Flavour, Node};
use seaway_testbed::{require_root, skip};

fn a_container_runs(flavour: Flavour) {
    if !require_root() {
        return;
    }
    if !flavour.is_installed() {
        skip(&format!(
            "{flavour:?} containerd is not installed: cargo xtask setup"
        ));
        return;
    }
    let mut config = Config::new("fixture", "off");
    config.flavour = flavour;
    let node = Node::new(config).unwrap();
    let image = seaway_testbed::images::BUSYBOX;
    let place_dir = node.place().dir().to_owned();
    let mut ran = node.ctr();
    let ran = ran
        .args(["run", "--rm", image, "one", "echo", "hello from inside"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(
        text.contains("hello from"),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let inside = node.run(&[
        "sh",
        "-c",
        "hostname; ls /opt/cni/bin; touch /etc/marker; ip route",
    ]);
    let text = String::from_utf8(inside.unwrap().stdout).unwrap();
    assert!(text.starts_with("node-1\nloopback\nseaway-cni\n"), "{text}");
    assert!(text.contains("default via 172.30.0.1"), "{text}");
    assert!(
        !Path::new("/etc/marker").exists(),
        "what the node writes stays in its folder"
    );
    assert!(place_dir.join("etc/marker").exists());
    drop(node);
    assert!(!place_dir.exists());
}

#[test]
fn a_container_runs_on_debians_containerd() {
    a_container_runs(Flavour::Debian);
}

#[test]
fn a_container_runs_on_the_last_containerd_1_x() {
    a_container_runs(Flavour::Built17);
}

#[test]
fn a_container_runs_on_the_built_containerd() {
    a_container_runs(Flavour::Built);
}
