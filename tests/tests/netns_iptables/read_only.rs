//! Where nobody may write sysctls, as in a container whose runtime mounts /proc/sys read-only.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour};
use seaway_testbed::Netns;
use seaway_testbed::peer::Protocol;

use crate::node::{Node, VIP, block_on, config, each_flavour, web};

/// Runs `work` inside, where it sees a /proc/sys of its own.
fn where_sysctls_are_read_only<T: Send>(node: &Netns, work: impl FnOnce() -> T + Send) -> T {
    node.enter(|| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let (sysctls, nothing) = ("/proc/sys", None::<&str>);
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).unwrap();
        mount(Some(sysctls), sysctls, nothing, MsFlags::MS_BIND, nothing).unwrap();
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(nothing, sysctls, nothing, read_only, nothing).unwrap();
        work()
    })
}

fn node(flavour: Flavour, run_dir: &Path) -> Node {
    let n = Node::new(Config {
        run_dir: run_dir.to_owned(),
        ..config(flavour)
    });
    n.host.sysctl("ipv4/conf/all/route_localnet", "0");
    n
}

fn route_localnet(n: &Node) -> String {
    let words = ["cat", "/proc/sys/net/ipv4/conf/all/route_localnet"];
    n.host.must_run(&words).trim().to_owned()
}

/// Whether NodePorts are served on 127.0.0.1.
fn loopback(served: bool) -> DesiredState {
    let mut desired = web(1);
    desired.v4.node_ports.localhost = served;
    desired
}

#[test]
fn node_ports_on_loopback_that_cannot_be_had_can_be_switched_off() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut n = node(flavour, dir.path());
        for served in [true, false] {
            let (backend, desired) = (&mut n.backend, loopback(served));
            let round = || block_on(sync_once(backend, None, &desired));
            let done = where_sysctls_are_read_only(&n.host, round);
            assert!(done.unwrap().changed);
            let dump = n.dump(flavour);
            assert_eq!(dump.contains("SEAWAY-LOCALHOST"), served, "{dump}");
        }
        assert_eq!(route_localnet(&n), "0");
        n.client.ask(Protocol::Tcp, VIP).unwrap();
    });
}

#[test]
fn what_keeps_strangers_out_is_all_that_stays_while_the_sysctl_cannot_be_set_back() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut n = node(flavour, dir.path());
        n.sync(&loopback(true));
        assert_eq!(route_localnet(&n), "1");
        let backend = &mut n.backend;
        let remove = || block_on(backend.remove_all());
        let removed = where_sysctls_are_read_only(&n.host, remove);
        removed.expect_err("strangers would get in");
        let dump = n.dump(flavour);
        for kept in ["-j SEAWAY-LOCALHOST", "-A SEAWAY-LOCALHOST"] {
            assert!(dump.contains(kept), "{dump}");
        }
        assert!(!dump.contains("SEAWAY-S"), "{dump}");
        n.remove_all();
        assert_eq!(route_localnet(&n), "0");
        let dump = n.dump(flavour);
        assert!(!dump.contains("SEAWAY"), "{dump}");
    });
}
