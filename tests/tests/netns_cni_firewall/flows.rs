//! What a hostPort of UDP does among other people's flows.

use std::net::UdpSocket;

use seaway_firewall::{Firewall, HostPort, Protocol};
use seaway_testbed::{Netns, connect, require_root};

use crate::memory::most_held;

/// Of others; what the kernel says of them takes a megabyte.
const FOREIGN: u16 = 6_000;
/// What an answer of the kernel takes, and not what all of them do.
const BOUND: usize = 400_000;
const NODE: &str = "172.30.0.1";
const POD: &str = "172.30.0.2";

fn port(host_port: u16) -> HostPort {
    HostPort {
        protocol: Protocol::Udp,
        host_ip: None,
        host_port,
        pod: POD.parse().unwrap(),
        pod_port: 80,
    }
}

/// Does something to the node's ports, and tells how much memory that took.
fn weigh(node: &Netns, work: fn(&mut Firewall)) -> usize {
    let ((), most) = node.enter(|| most_held(|| work(&mut Firewall::open().unwrap())));
    most
}

/// Flows to the port that the kernel knows.
fn flows(node: &Netns) -> usize {
    let words = ["conntrack", "-L", "-f", "ipv4", "-p", "udp"];
    let listed = node.must_run(&words);
    let to_port = |line: &&str| line.contains(" dport=30009 ");
    listed.lines().filter(to_port).count()
}

fn known(node: &Netns) -> usize {
    let count = node.must_run(&["conntrack", "-C"]);
    count.trim().parse().unwrap()
}

/// node 172.30.0.1 - 172.30.0.2, which stands for a pod, and for all the others.
#[test]
fn among_thousands_of_flows_a_port_forgets_its_own_and_keeps_no_others_in_memory() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Netns::new("node"), Netns::new("pod"));
    connect(&node, "up0", "172.30.0.1/24", &pod, "eth0", "172.30.0.2/24");
    // With the first port the kernel begins to follow flows.
    weigh(&node, |firewall| {
        firewall.add_host_ports(&[port(30_007)]).unwrap();
    });
    // None of them ends while a slow machine is at it.
    node.sysctl("netfilter/nf_conntrack_udp_timeout", "600");
    let send = |to: (&'static str, u16)| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"?", to).unwrap();
    };
    node.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for port in 1..=FOREIGN {
            socket.send_to(b"?", (POD, port)).unwrap();
        }
        send((NODE, 30_009));
    });
    assert!(known(&node) > usize::from(FOREIGN));
    assert_eq!(flows(&node), 1);

    let most = weigh(&node, |firewall| {
        firewall.add_host_ports(&[port(30_009)]).unwrap();
    });
    assert_eq!(flows(&node), 0, "the node itself has it");
    assert!(most < BOUND, "ADD: {most} bytes");

    node.enter(|| send((NODE, 30_009)));
    assert_eq!(flows(&node), 1);
    let most = weigh(&node, |firewall| {
        let pods = [POD.parse().unwrap()];
        assert_eq!(firewall.remove_host_ports_of(&pods).unwrap(), 2);
    });
    assert_eq!(flows(&node), 0, "the pod has it");
    assert!(most < BOUND, "DEL: {most} bytes");
    assert!(known(&node) >= usize::from(FOREIGN), "others keep theirs");
}
