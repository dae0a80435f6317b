//! Told to stop while it writes, once and twice, and while somebody asks for its health.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::{require_root, wait_until};

use crate::fill;
use crate::node::{API, Daemon, HEALTHZ, Node};

/// A daemon in the midst of a transaction that goes on when there is a file `go`.
fn writing(node: &Node, start: impl FnOnce() -> Daemon) -> (FakeApi, Daemon) {
    node.hold_restore();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = start();
    daemon.wait("a transaction", || node.path("started").exists());
    (api, daemon)
}

#[test]
fn told_to_stop_it_finishes_what_it_writes() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (_api, mut daemon) = writing(&node, || node.start("iptables"));
    daemon.signal(Signal::SIGTERM);
    daemon.wait_said(&["Stopping"]);
    assert!(
        daemon.lives(),
        "it left a transaction alone: {}",
        daemon.log()
    );
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(node.has_rule("10.96.0.1"));
}

#[test]
fn told_to_stop_twice_it_ends_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (_api, daemon) = writing(&node, || node.start("iptables"));
    daemon.signal(Signal::SIGTERM);
    daemon.wait_said(&["Stopping"]);
    assert_eq!(daemon.terminate().code(), Some(1));
}

#[test]
fn a_signal_while_it_ends_for_another_file_is_no_second_one() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let file = node.path("kube-proxy.conf");
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    fs::write(&file, head).unwrap();
    let flags = ["--config", file.to_str().unwrap(), "--pod-network", "off"];
    let (_api, mut daemon) = writing(&node, || node.start_with("iptables", &flags));
    fs::write(&file, format!("{head}conntrack: {{ udpTimeout: 9s }}\n")).unwrap();
    daemon.wait_said(&["Stopping"]);
    daemon.signal(Signal::SIGTERM);
    let ended = wait_until(Duration::from_millis(300), "its end", || {
        Ok((!daemon.lives()).then_some(()).ok_or_else(String::new))
    });
    assert!(ended.is_err(), "{}", daemon.log());
    fs::write(node.path("go"), "").unwrap();
    daemon.wait_said(&["Ending", "kube-proxy.conf says something else"]);
    assert_eq!(daemon.ended().code(), Some(1));
    assert!(node.has_rule("10.96.0.1"));
}

/// Whoever reaches the port can do that.
#[test]
fn half_a_request_does_not_keep_it_from_a_good_end() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start_with("iptables", &["--pod-network", "off"]);
    daemon.wait_said(&["Programmed all Services"]);
    let address: SocketAddr = HEALTHZ.parse().unwrap();
    let mut half = node.netns.enter(|| TcpStream::connect(address)).unwrap();
    half.write_all(b"G").unwrap();
    // Who came later has been answered, so this one has been seen.
    assert_eq!(node.get("/livez").unwrap().0, 200);
    let (log, told) = (daemon.log_path(), Instant::now());
    let code = daemon.terminate().code();
    let (took, log) = (told.elapsed(), fs::read_to_string(log).unwrap());
    assert_eq!(code, Some(0), "{log}");
    assert!(took < Duration::from_secs(10), "{took:?}\n{log}");
    drop(half);
}
