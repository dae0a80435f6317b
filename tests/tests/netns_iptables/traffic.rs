//! Who answers, and whom the server sees.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use seaway_proxy_core::desired::{self, LocalSources};
use seaway_testbed::peer::{Held, PATIENCE, Protocol};
use seaway_testbed::{Netns, uninterrupted};

use crate::node::{Node, OUTSIDE, VIP, answers, config, each_flavour, error_of, names, web};

const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::UdpUnconnected];

fn both() -> BTreeSet<&'static str> {
    BTreeSet::from(["pod0", "pod1"])
}

#[test]
fn a_cluster_ip_is_answered_by_all_endpoints() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        assert!(n.sync(&web(2)));
        for protocol in PROTOCOLS {
            let answers = answers(&n.client, protocol, VIP);
            assert_eq!(names(&answers), both(), "{protocol:?}");
            let client: IpAddr = "10.244.9.2".parse().unwrap();
            assert!(
                answers.iter().all(|a| a.client.ip() == client),
                "the source is kept"
            );
            assert!(
                answers.iter().all(|a| a.server.to_string() == VIP),
                "the reply is undone"
            );
        }
    });
}

#[test]
fn the_node_itself_is_a_client_too() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        for protocol in PROTOCOLS {
            assert_eq!(
                names(&answers(&n.host, protocol, VIP)),
                both(),
                "{protocol:?}"
            );
        }
    });
}

#[test]
fn a_pod_reaches_itself() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(1));
        for protocol in PROTOCOLS {
            assert_eq!(
                names(&answers(&n.pods[0], protocol, VIP)),
                BTreeSet::from(["pod0"])
            );
        }
        n.sync(&web(2));
        let answers = answers(&n.pods[0], Protocol::Tcp, VIP);
        assert_eq!(names(&answers), both());
        // Only what comes back to the asking pod loses its source.
        let other: IpAddr = "10.244.0.2".parse().unwrap();
        assert!(
            answers
                .iter()
                .all(|a| (a.client.ip() == other) == (a.name == "pod1"))
        );
    });
}

/// A UDP datagram that the node itself sends is dropped before it leaves, and the kernel tells
/// the sender at once: EPERM of `sendmsg`, before the port unreachable comes in.
#[track_caller]
fn refused(from: &Netns, udp: ErrorKind) {
    let tcp = error_of(from.ask(Protocol::Tcp, VIP));
    assert_eq!(
        (tcp, error_of(from.ask(Protocol::Udp, VIP))),
        (ErrorKind::ConnectionRefused, udp)
    );
}

#[test]
fn without_endpoints_refused_and_with_them_back_to_work() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        let address = VIP.parse().unwrap();
        let mut held = n.client.enter(|| Held::open(address, PATIENCE)).unwrap();

        assert!(n.sync(&web(0)));
        refused(&n.client, ErrorKind::ConnectionRefused);
        refused(&n.host, ErrorKind::PermissionDenied);
        held.check().expect("what is connected stays connected");

        assert!(n.sync(&web(2)));
        for from in [&n.client, &n.host] {
            assert_eq!(names(&answers(from, Protocol::Tcp, VIP)), both());
            assert_eq!(names(&answers(from, Protocol::Udp, VIP)), both());
        }
        held.check().expect("what is connected stays connected");
    });
}

#[test]
fn a_removed_endpoint_gets_no_new_connections() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        n.sync(&web(1));
        for protocol in PROTOCOLS {
            assert_eq!(
                names(&answers(&n.client, protocol, VIP)),
                BTreeSet::from(["pod0"])
            );
        }
    });
}

#[test]
fn ports_that_no_service_has_are_left_alone() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        let server = n.outside.serve(Protocol::Tcp, "0.0.0.0:81", "outside");
        n.outside.ip("addr add 10.96.0.10/32 dev lo");
        assert_eq!(n.client.ask_tcp("10.96.0.10:81").unwrap(), "outside");
        drop(server);
    });
}

/// Case 39: as in kube-proxy's iptables mode, an echo request is no Service's business.
#[test]
fn a_ping_to_a_cluster_ip_is_left_alone() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        let (ip, _) = VIP.split_once(':').unwrap();
        let ping = |from: &Netns| {
            let ping = ["busybox", "ping", "-c", "1", "-W", "1", ip];
            from.run(&ping).status.success()
        };
        assert!(!ping(&n.client), "nobody has the address");
        n.outside.ip(&format!("addr add {ip}/32 dev lo"));
        assert!(ping(&n.client) && ping(&n.host), "somebody has");
    });
}

/// Case 255: what is larger than a packet, both ways.
#[test]
fn large_requests_and_answers_pass() {
    const LARGE: usize = 4 << 20;
    const DATAGRAM: usize = 60_000;
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = web(1);
        let echo: SocketAddr = "10.244.0.2:9090".parse().unwrap();
        for service in desired.v4.services.values_mut() {
            if service.frontends[0].protocol == desired::Protocol::Udp {
                service.cluster[0].addr = echo;
                service.serving = vec![echo];
            }
        }
        n.sync(&desired);
        let udp = n.pods[0].enter(|| UdpSocket::bind(echo)).unwrap();
        udp.set_read_timeout(Some(PATIENCE)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut room = vec![0; DATAGRAM + 1];
                let (length, from) = uninterrupted(|| udp.recv_from(&mut room)).unwrap();
                udp.send_to(&room[..length], from).unwrap();
            });
            n.client.enter(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect(VIP).unwrap();
                let sent: Vec<u8> = (0..DATAGRAM)
                    .map(|i| u8::try_from(i % 251).unwrap())
                    .collect();
                socket.send(&sent).unwrap();
                let mut got = vec![0; DATAGRAM + 1];
                let length = uninterrupted(|| socket.recv(&mut got)).unwrap();
                assert!(got[..length] == sent, "{length} bytes came back");
            });
        });
        // The other servers echo what follows their greeting.
        n.client.enter(|| {
            let mut stream = BufReader::new(TcpStream::connect(VIP).unwrap());
            stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_line(&mut String::new()).unwrap();
            let mut writer = stream.get_ref().try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || writer.write_all(&vec![7; LARGE]).unwrap());
                let mut got = vec![0; LARGE];
                stream.read_exact(&mut got).unwrap();
                assert!(got.iter().all(|byte| *byte == 7));
            });
        });
    });
}

#[test]
fn clients_from_outside_are_masqueraded_if_configured() {
    each_flavour(|flavour| {
        let node: IpAddr = "10.244.0.1".parse().unwrap();
        let outside: IpAddr = OUTSIDE.parse().unwrap();
        let pod: IpAddr = "10.244.9.2".parse().unwrap();
        let networks = vec!["10.244.0.0/16".parse().unwrap()];
        for (sources, seen) in [
            (LocalSources::Unknown, outside),
            (LocalSources::Networks(networks.clone()), node),
        ] {
            let mut n = Node::new(config(flavour));
            let mut desired = web(1);
            desired.v4.local_sources = sources;
            n.sync(&desired);
            let answer = n.outside.ask(Protocol::Tcp, VIP).unwrap();
            assert_eq!(answer.client.ip(), seen);
            let answer = n.client.ask(Protocol::Tcp, VIP).unwrap();
            assert_eq!(
                answer.client.ip(),
                pod,
                "a pod's source is kept in any case"
            );
        }
    });
}

#[test]
fn a_node_reaches_its_own_endpoint() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let server = n.host.serve(Protocol::Tcp, "192.168.60.1:8080", "node");
        let mut desired = web(1);
        for service in desired.v4.services.values_mut() {
            service.cluster[0].addr = server.address();
        }
        n.sync(&desired);
        // As a host-network pod that is its own client, and for a client elsewhere.
        assert_eq!(n.host.ask_tcp(VIP).unwrap(), "node");
        assert_eq!(n.client.ask_tcp(VIP).unwrap(), "node");
    });
}
