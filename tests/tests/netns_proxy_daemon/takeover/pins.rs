//! Pins of other versions, and of other names in our own folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::require_root;

use super::{PODS, WEB};
use crate::node::{API, Daemon, Node};
use crate::{fill, slice};

const FLAGS: [&str; 4] = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];

/// A node whose Services are in eBPF maps, led to the old pod.
struct Pinned {
    /// Before the namespace, so that they end first.
    _servers: [Server; 2],
    api: FakeApi,
    node: Node,
}

impl Pinned {
    fn new() -> Self {
        let node = Node::new();
        node.netns.ip("addr add 10.244.0.6/32 dev lo");
        let servers = PODS.map(|(at, name)| node.netns.serve(Protocol::Tcp, at, name));
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        fill(&api);
        api.apply(SLICES, slice("web", "10.244.0.6"));
        Self {
            _servers: servers,
            api,
            node,
        }
    }

    fn pins(&self) -> BTreeSet<PathBuf> {
        self.node.pins().into_iter().collect()
    }

    /// Runs a daemon that is killed with its pins in place, of which some get other names.
    fn leave(&self, names: &[(&str, &str)]) {
        let daemon = self.node.start_with("ebpf", &FLAGS);
        daemon.wait_said(&["Programmed all Services"]);
        // Only its own mounts show them.
        let seaway = PathBuf::from(format!("/proc/{}/root/sys/fs/bpf/seaway", daemon.pid()));
        for (from, to) in names {
            fs::rename(seaway.join(from), seaway.join(to)).unwrap();
        }
        daemon.end(Signal::SIGKILL);
        fs::remove_file(self.node.path("log")).unwrap();
    }

    /// A daemon that has programmed all Services and brought about `end`; meanwhile somebody
    /// answers each time.
    fn start(&self, mode: &str, end: impl Fn() -> bool) -> Daemon {
        let daemon = self.node.start_with(mode, &FLAGS);
        daemon.wait("the removal of other pins", || {
            let answer = self.node.ask(WEB);
            let is_of = |name: &str| answer.starts_with(name);
            assert!(is_of("old") || is_of("new"), "{answer}\n{}", daemon.log());
            daemon.said(&["Programmed all Services"]) > 0 && end()
        });
        daemon
    }
}

#[test]
fn pins_of_another_version_go_once_this_one_serves() {
    if !require_root() {
        return;
    }
    for mode in ["ebpf", "iptables"] {
        let place = Pinned::new();
        let none = place.pins();
        place.leave(&[("v1", "v0")]);
        place.api.apply(SLICES, slice("web", "10.244.0.5"));
        assert!(place.node.ask(WEB).starts_with("old"));
        let is_other = |pin: &PathBuf| pin.starts_with("/sys/fs/bpf/seaway/v0");
        let daemon = place.start(mode, || !place.pins().iter().any(is_other));
        assert!(place.node.ask(WEB).starts_with("new"), "{}", daemon.log());
        assert_eq!(daemon.terminate().code(), Some(0));
        place.node.cleanup();
        assert_eq!(place.pins(), none);
    }
}

#[test]
fn pins_of_other_names_in_our_own_folder_go_as_well() {
    if !require_root() {
        return;
    }
    let place = Pinned::new();
    place.leave(&[]);
    let whole = place.pins();
    place.leave(&[
        ("v1/links/recvmsg4", "v1/links/answer4"),
        ("v1/maps/COUNTERS", "v1/maps/TALLY"),
    ]);
    assert_ne!(place.pins(), whole);
    let daemon = place.start("ebpf", || place.pins() == whole);
    assert_eq!(daemon.said(&["Removing a pin of another version"]), 2);
}
