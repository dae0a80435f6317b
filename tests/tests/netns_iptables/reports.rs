//! What users of other service proxies have reported: ports and addresses that collide, a lock
//! that somebody holds, devices that do not exist. `docs/cases-bugs.tsv` has all reports.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use seaway_proxy_core::desired::{DesiredState, Frontend, FrontendKind, LocalSources};
use seaway_proxy_iptables::Flavour;
use seaway_testbed::Netns;
use seaway_testbed::peer::Protocol;

use crate::node::{Node, OUTSIDE, VIP, config, each_flavour, web};
use crate::reports_tcp::dial;

const NODE: &str = "192.168.60.1";

/// The Service with a NodePort and these external IPs, and pods told by their network.
pub(crate) fn exposed(pods: u8, external: &[&str]) -> DesiredState {
    let mut desired = web(pods);
    let networks = vec!["10.244.0.0/16".parse().unwrap()];
    desired.v4.local_sources = LocalSources::Networks(networks);
    for port in desired.v4.services.values_mut() {
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        port.frontends.extend(external.iter().map(|addr| Frontend {
            addr: addr.parse().unwrap(),
            kind: FrontendKind::ExternalIp,
            ..cluster_ip
        }));
    }
    desired
}

/// A reply to the node's own address is not taken for a client of the NodePort.
#[test]
fn r4_masquerade_may_pick_a_port_that_is_a_node_port() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.restore(
            flavour,
            "*nat\n-A POSTROUTING -s 10.244.0.0/16 -o uplink -j MASQUERADE\nCOMMIT",
        );
        n.sync(&exposed(2, &[]));
        let address = format!("{OUTSIDE}:7");
        let _server = n.outside.serve(Protocol::Tcp, &address, "outside");
        let (_stream, greeting) = n.client.enter(|| dial(30001, &address)).unwrap();
        assert_eq!(greeting, format!("outside {NODE}:30001"));
        let node_port = format!("{NODE}:30001");
        assert!(n.outside.ask_tcp(&node_port).unwrap().starts_with("pod"));
    });
}

/// Waits for the answer to an echo request.
#[track_caller]
fn ping(from: &Netns, addr: &str) {
    const REPLY: u8 = 0;
    // Type 8 with its checksum and nothing in it.
    let request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let answered = from.enter(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(
            AddressFamily::Inet,
            SockType::Raw,
            flags,
            SockProtocol::Icmp,
        )?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::seconds(2))?;
        let to = SockaddrIn::from(SocketAddrV4::new(addr.parse().unwrap(), 0));
        sendto(fd.as_raw_fd(), &request, &to, MsgFlags::empty())?;
        let mut packet = [0; 100];
        // A node that asks itself sees the request first.
        while packet[20] != REPLY || packet[0] == 0 {
            let received = recv(fd.as_raw_fd(), &mut packet, MsgFlags::empty());
            // A command of the backend that ends is a signal.
            if received != Err(Errno::EINTR) {
                received?;
            }
        }
        nix::Result::Ok(())
    });
    answered.unwrap_or_else(|error| panic!("{} pings {addr}: {error}", from.name()));
}

#[test]
fn n5_an_external_ip_that_is_a_nodes_own_takes_one_port_and_no_more() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&exposed(2, &[NODE, OUTSIDE]));
        let at = |addr: &str, port: u16| format!("{addr}:{port}");
        let _here = n.host.serve(Protocol::Tcp, &at(NODE, 22), "here");
        let _there = n.outside.serve(Protocol::Tcp, &at(OUTSIDE, 22), "there");
        for from in [&n.outside, &n.host, &n.client] {
            assert_eq!(from.ask_tcp(&at(NODE, 22)).unwrap(), "here");
            ping(from, NODE);
            assert!(from.ask_tcp(&at(NODE, 80)).unwrap().starts_with("pod"));
            assert!(from.ask_tcp(&at(NODE, 30001)).unwrap().starts_with("pod"));
        }
        for from in [&n.host, &n.client] {
            assert_eq!(from.ask_tcp(&at(OUTSIDE, 22)).unwrap(), "there");
            ping(from, OUTSIDE);
            assert!(from.ask_tcp(&at(OUTSIDE, 80)).unwrap().starts_with("pod"));
        }
    });
}

#[test]
fn h5_an_endpoint_in_the_nodes_network_sees_the_pod_that_asks() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let server = n.host.serve(Protocol::Tcp, &format!("{NODE}:8080"), "node");
        let mut desired = exposed(1, &[]);
        for service in desired.v4.services.values_mut() {
            service.cluster[0].addr = server.address();
        }
        n.sync(&desired);
        let answer = n.client.ask(Protocol::Tcp, VIP).unwrap();
        assert_eq!(answer.name, "node");
        assert_eq!(answer.client.ip().to_string(), "10.244.9.2");
        assert_eq!(n.host.ask_tcp(VIP).unwrap(), "node");
    });
}

#[test]
fn c7_a_lock_that_somebody_holds_is_waited_for() {
    const HELD: Duration = Duration::from_millis(1500);
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(1));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open("/run/xtables.lock");
        let lock = Flock::lock(file.unwrap(), FlockArg::LockExclusive).unwrap();
        let start = Instant::now();
        let holder = std::thread::spawn(move || {
            let (_sender, nothing) = std::sync::mpsc::channel::<()>();
            nothing.recv_timeout(HELD).unwrap_err();
            lock.unlock().unwrap();
        });
        assert!(n.sync(&web(2)));
        assert!(
            flavour == Flavour::Nft || start.elapsed() >= HELD,
            "nobody waited"
        );
        holder.join().unwrap();
        assert!(!n.sync(&web(2)), "nothing was lost");
    });
}

#[test]
fn p17_devices_that_pods_will_come_by_need_not_exist() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        for sources in [
            LocalSources::InterfacePrefix("azv".to_owned()),
            LocalSources::Interface("azv0".to_owned()),
        ] {
            let mut desired = exposed(2, &[]);
            desired.v4.local_sources = sources;
            assert!(n.sync(&desired));
            assert!(!n.sync(&desired), "what was read is what was written");
            assert!(n.client.ask_tcp(VIP).unwrap().starts_with("pod"));
        }
    });
}
