//! hostPorts that are many, and that several processes change at once.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::sync::Barrier;

use seaway_firewall::{Firewall, HostPort, Protocol};
use seaway_testbed::{Netns, require_root};

use crate::firewall;

fn address(pod: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, pod).into()
}

/// Ports of a pod, each pod's at an address of its own: of the longest elements.
fn ports(pod: u16, count: u16) -> Vec<HostPort> {
    let host_ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, pod);
    let port = |n: u16| HostPort {
        protocol: [Protocol::Tcp, Protocol::Udp][usize::from(n % 2)],
        host_ip: Some(host_ip.into()),
        host_port: n + 1,
        pod: address(pod),
        pod_port: 80,
    };
    (0..count).map(port).collect()
}

/// A media server's, say.
#[test]
fn hundreds_of_ports_of_a_pod_come_and_go() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    let mut firewall = firewall(&node);
    let ports = ports(1, 1000);
    firewall.add_host_ports(&ports).unwrap();
    assert_eq!(firewall.missing_host_port(&ports).unwrap(), None);
    let taken = firewall.add_host_ports(&[HostPort {
        pod: address(2),
        ..ports[700]
    }]);
    let error = taken.unwrap_err().to_string();
    assert!(error.contains("leads to fd00:1::1 already"), "{error}");
    assert_eq!(firewall.remove_host_ports_of(&[address(1)]).unwrap(), 1000);
    assert_eq!(firewall.remove_host_ports_of(&[address(1)]).unwrap(), 0);
    let table = node.must_run(&["nft", "list", "table", "ip6", "seaway"]);
    assert!(!table.contains("elements"), "{table}");
}

#[test]
fn of_two_who_remove_the_same_ports_each_port_is_told_by_one() {
    if !require_root() {
        return;
    }
    let node = Netns::new("node");
    let ports = ports(1, 60);
    for round in 0..60 {
        firewall(&node).restore_host_ports(&ports).unwrap();
        let both = Barrier::new(2);
        let removed: usize = std::thread::scope(|scope| {
            let remove = || {
                let (fd, both) = (node.fd(), &both);
                scope.spawn(move || {
                    let mut firewall = Firewall::open_in(fd.as_fd()).unwrap();
                    both.wait();
                    firewall.remove_host_ports_of(&[address(1)]).unwrap()
                })
            };
            let removers = [remove(), remove()];
            removers.map(|remover| remover.join().unwrap()).iter().sum()
        });
        assert_eq!(removed, ports.len(), "round {round}");
        let left = firewall(&node).host_port_pods().unwrap();
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}
