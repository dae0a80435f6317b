//! hostPorts of a pod among many others' that come and go meanwhile.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::poll;
use seaway_firewall::{Firewall, HostPort, Protocol};
use seaway_testbed::{Netns, require_root, strace_is_missing};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, pod_path, text};
use crate::trace::traced;

/// Between two messages of a list what has been listed goes, or something comes; both happen
/// several times in a call.
const PAUSE_MS: u8 = 20;
const SLOW: [&str; 6] = [
    "-o",
    "/dev/null",
    "-e",
    "trace=recvmsg",
    "-e",
    "inject=recvmsg:delay_enter=50000",
];
/// Enough for a second message.
const OWN: u16 = 60;
const OTHERS: u16 = 240;
const NOBODY: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 9));

fn ports_of_others() -> Vec<HostPort> {
    let port = |n| HostPort {
        protocol: Protocol::Tcp,
        host_ip: Some(Ipv6Addr::new(0xfd00, 0x192, 0, 0, 0, 0, 0, 1).into()),
        host_port: n,
        pod: NOBODY,
        pod_port: 80,
    };
    (1..=OTHERS).map(port).collect()
}

/// Others' ports are there, and not there, in turns.
fn come_and_go(node: &OwnedFd, stop: &AtomicBool) {
    let mut firewall = Firewall::open_in(node.as_fd()).unwrap();
    let ports = ports_of_others();
    while !stop.load(Ordering::Relaxed) {
        firewall.restore_host_ports(&ports).unwrap();
        poll(&mut [], PAUSE_MS).unwrap();
        let removed = firewall.remove_host_ports_of(&[NOBODY]).unwrap();
        assert_eq!(removed, ports.len());
        poll(&mut [], PAUSE_MS).unwrap();
    }
}

/// The kernel lists a set in the order of its hash table, over again for each message, and
/// passes over as many as it has listed: when some of them are gone, others are left out.
#[test]
fn what_others_add_and_remove_hides_no_port_from_del() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (mut node, pod) = (Node::with_ranges(&["fd00:1:2::/64"]), Netns::new("pod"));
    let own =
        |n| json!({"hostIP": "fd00:172::11", "hostPort": n, "containerPort": n, "protocol": "tcp"});
    let own: Vec<Value> = (1..=OWN).map(own).collect();
    node.conf["runtimeConfig"] = json!({ "portMappings": own });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..5 {
            node.add("c1", &pod);
            stop.store(false, Ordering::Relaxed);
            let (fd, stop) = (node.netns.fd(), &stop);
            let others = scope.spawn(move || come_and_go(&fd, stop));
            let output = traced(&node, "DEL", "c1", pod_path(&pod), &SLOW);
            stop.store(true, Ordering::Relaxed);
            others.join().unwrap();
            assert!(output.status.success(), "{}", text(&output));
            assert_eq!(elements(&node), [""; 0]);
        }
    });
}
