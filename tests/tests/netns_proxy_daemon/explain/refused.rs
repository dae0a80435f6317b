//! Questions that are bad, that cannot be answered, or that somebody asks who may not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seaway_testbed::{bin, require_root};

use super::{FLAGS, check, explain, status, told};
use crate::node::Node;

/// The program, run by somebody else, from where that one may start it.
fn as_nobody(verb: &[&str]) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("seaway-proxy");
    // By another process: what this one holds open for writing, a child of another thread
    // holds as well for a moment, and then nobody may start it.
    let copied = Command::new("cp")
        .arg(bin("seaway-proxy"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(verb).uid(65534).gid(65534).current_dir("/");
    told(command)
}

#[test]
fn bad_questions_exit_64_and_unanswerable_ones_69() {
    for (words, expect) in [
        ("10.96.0.1", "ADDRESS:PORT"),
        ("web:80", "ADDRESS:PORT"),
        ("10.96.0.1:0", "port 0"),
        ("10.96.0.1:80/ICMP", "ICMP"),
        ("10.96.0.1:80 --from nobody", "--from"),
        ("10.96.0.1:80 --output yaml", "--output"),
        ("", "ADDRESS:PORT"),
    ] {
        let mut command = Command::new(bin("seaway-proxy"));
        command.arg("explain").args(words.split_whitespace());
        let (code, _, said) = told(command);
        assert_eq!(code, 64, "{words}: {said}");
        check(&said, &[expect]);
    }
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 69, "{text} {said}");
    check(&said, &["the daemon does not run", "refused"]);
    for verb in [&["status"][..], &["explain", "10.96.0.1:80"]] {
        let (code, _, said) = as_nobody(verb);
        assert_eq!(code, 69, "{said}");
        check(&said, &["only root may"]);
    }
    // Without a kubeconfig there is nobody to ask.
    let mut command = node.command("explain");
    command.args(FLAGS).arg("10.96.0.1:80");
    let (code, _, said) = told(command);
    assert_eq!(code, 64, "{said}");
    check(&said, &["--kubeconfig"]);
    // Alive, and without the API server's word.
    let daemon = node.start("iptables");
    daemon.wait("the socket", || node.path("run/proxy.sock").exists());
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 69, "{text} {said}");
    check(&said, &["has not told all Services"]);
    assert_eq!(status(&node).0, 1);
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(!node.path("run/proxy.sock").exists());
}
