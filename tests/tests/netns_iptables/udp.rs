//! UDP clients that keep their source port while endpoints come and go.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Frontend, FrontendKind, LocalSources, Protocol, TrafficPolicy,
};
use seaway_proxy_iptables::{Config, Iptables};
use seaway_testbed::Netns;

use crate::node::{Node, OUTSIDE, VIP, block_on, config, each_flavour, web};

const NODE_PORT: u16 = 30053;
/// Of the node, beyond its uplink.
const NODE: &str = "192.168.60.1:30053";
const POD_PORT: u16 = 8080;
const TRIES: usize = 3;
/// Somebody else's rules, for which the kernel begins to track.
const TRACKED: &str = "*nat
-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE
COMMIT
*filter
-A FORWARD -m conntrack --ctstate INVALID -s 172.17.0.0/16 -j DROP
COMMIT";

/// The Service at [`VIP`] and [`NODE`]: who answers new clients, and who still serves.
fn dns(new: &[u8], serving: &[u8]) -> DesiredState {
    let mut desired = web(0);
    let addr = |&pod: &u8| ([10, 244, pod, 2], POD_PORT).into();
    for (name, port) in &mut desired.v4.services {
        if name.port != "http-udp" {
            continue;
        }
        let node_port = Frontend {
            addr: "0.0.0.0".parse().unwrap(),
            port: NODE_PORT,
            protocol: Protocol::Udp,
            kind: FrontendKind::NodePort,
        };
        port.frontends.push(node_port);
        let endpoints = new.iter().map(addr);
        port.cluster = endpoints
            .map(|addr| Endpoint { addr, local: true })
            .collect();
        port.serving = serving.iter().map(addr).collect();
    }
    desired
}

/// A client that never changes its port.
struct Client(UdpSocket);

impl Client {
    fn new(from: &Netns, to: &str) -> Self {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            socket.connect(to)?;
            Ok(socket)
        };
        Self(from.enter(open).unwrap())
    }

    /// Who answers, or why nobody does. The kernel may lose a datagram while a link
    /// comes up; one that is black-holed loses all.
    fn ask(&self) -> String {
        let answer = (0..TRIES).map(|_| self.try_ask());
        let silence = io::ErrorKind::WouldBlock.to_string();
        let mut answer = answer.skip_while(|answer| *answer == silence);
        answer.next().unwrap_or(silence.clone())
    }

    fn try_ask(&self) -> String {
        // An error of an earlier datagram is not of this one.
        self.0.take_error().unwrap();
        let asked = || {
            self.0.send(b"who?")?;
            let mut room = [0; 100];
            // A command of the backend that ends is a signal, and a wait with a timeout is
            // not taken up again by itself after one.
            let length = loop {
                match self.0.recv(&mut room) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    received => break received?,
                }
            };
            Ok(String::from_utf8_lossy(&room[..length]).into_owned())
        };
        let asked: io::Result<String> = asked();
        match asked {
            Ok(answer) => answer.split(' ').next().unwrap().to_owned(),
            Err(error) => error.kind().to_string(),
        }
    }
}

/// Clients on a pod and on the node, of each kind of frontend, and one from outside.
fn clients(n: &Node) -> Vec<Client> {
    n.outside.ip("route replace 192.168.60.1/32 dev eth0");
    vec![
        Client::new(&n.client, VIP),
        Client::new(&n.host, VIP),
        Client::new(&n.client, NODE),
        Client::new(&n.outside, NODE),
    ]
}

#[track_caller]
fn all_answered(clients: &[Client], by: &str) {
    let answers: Vec<String> = clients.iter().map(Client::ask).collect();
    assert_eq!(answers, vec![by; clients.len()]);
}

/// The daemon ends and starts: nothing of it is remembered.
fn restart(n: &mut Node, config: Config) {
    n.backend = n.host.enter(|| block_on(Iptables::new(config))).unwrap();
}

/// conntrack's entries of the Service.
fn entries(n: &Node, part: &str) -> Vec<String> {
    let table = n
        .host
        .must_run(&["conntrack", "-L", "-p", "udp", "-o", "id"]);
    let lines = table.lines().filter(|line| line.contains(part));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_udp_client_follows_the_endpoints() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        n.sync(&dns(&[1], &[1]));
        all_answered(&clients, "pod1");
        // The one that is left out still serves, so nobody is sent away from there.
        n.sync(&dns(&[0], &[0, 1]));
        all_answered(&clients, "pod1");
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
    });
}

#[test]
fn a_udp_client_that_came_before_the_endpoints_is_served_by_them() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        // Without rules its datagrams leave untranslated, and conntrack remembers that.
        n.restore(flavour, TRACKED);
        let clients = clients(&n);
        for client in &clients {
            client.ask();
        }
        assert!(!entries(&n, "dst=10.96.0.10").is_empty());
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
        n.sync(&dns(&[], &[]));
        for client in &clients {
            assert_ne!(client.ask(), "pod0");
        }
        n.sync(&dns(&[1], &[1]));
        all_answered(&clients, "pod1");
    });
}

#[test]
fn no_udp_flow_goes_on_to_the_last_endpoint_when_it_has_gone() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        assert!(!entries(&n, "src=10.244.0.2 ").is_empty());
        n.sync(&dns(&[], &[]));
        assert_eq!(entries(&n, "src=10.244.0.2 "), [""; 0]);
        for client in &clients {
            assert_ne!(client.ask(), "pod0");
        }
        assert_eq!(entries(&n, "src=10.244.0.2 "), [""; 0]);
        // Nor when the Service itself goes.
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
        n.sync(&DesiredState::default());
        assert_eq!(entries(&n, "src=10.244.0.2 "), [""; 0]);
    });
}

#[test]
fn a_restart_finds_stale_udp_flows_and_leaves_the_others() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&dns(&[0, 1], &[0, 1]));
        let clients: Vec<Client> = (0..20).map(|_| Client::new(&n.client, VIP)).collect();
        let before: Vec<String> = clients.iter().map(Client::ask).collect();
        let known = entries(&n, "dst=10.96.0.10");
        assert_eq!(known.len(), 20);
        let ids = |entries: &[String]| -> Vec<String> {
            let id = |line: &String| line.rsplit("id=").next().unwrap().to_owned();
            let mut ids: Vec<String> = entries.iter().map(id).collect();
            ids.sort();
            ids
        };
        restart(&mut n, config(flavour));
        assert!(!n.sync(&dns(&[0, 1], &[0, 1])));
        let after: Vec<String> = clients.iter().map(Client::ask).collect();
        assert_eq!(before, after);
        assert_eq!(ids(&known), ids(&entries(&n, "dst=10.96.0.10")));
        // An endpoint goes while nobody looks.
        restart(&mut n, config(flavour));
        n.sync(&dns(&[1], &[1]));
        all_answered(&clients, "pod1");
    });
}

#[test]
fn flows_to_other_hosts_are_nobodys_business() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let far = format!("{OUTSIDE}:{NODE_PORT}");
        let _server = n
            .outside
            .serve(seaway_testbed::peer::Protocol::Udp, &far, "far");
        n.restore(flavour, TRACKED);
        let client = Client::new(&n.client, &far);
        assert_eq!(client.ask(), "far");
        let part = format!("dst={OUTSIDE}");
        let before = entries(&n, &part);
        assert_eq!(before.len(), 1);
        n.sync(&dns(&[0], &[0]));
        n.sync(&dns(&[1], &[1]));
        let id = |entries: &[String]| entries[0].rsplit("id=").next().unwrap().to_owned();
        assert_eq!(id(&before), id(&entries(&n, &part)));
    });
}

#[test]
fn a_failed_round_does_not_lose_the_clean_up() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        // A round that has written its rules and died before it came to conntrack.
        let backend = &mut n.backend;
        let half_done = || {
            use seaway_proxy_core::backend::Backend as _;
            let want = backend.render(&dns(&[1], &[1]));
            block_on(async {
                let have = backend.read_back().await.unwrap();
                backend.apply(&have, &want).await.unwrap();
            });
        };
        n.host.enter(half_done);
        assert!(!n.sync(&dns(&[1], &[1])), "the rules are there");
        all_answered(&clients, "pod1");
    });
}

/// Who never gets an answer keeps conntrack's entry alive by sending alone.
#[test]
fn u2_u11_a_one_way_sender_does_not_reach_an_endpoint_that_has_gone() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let silent = || UdpSocket::bind("10.244.0.2:9000");
        let receiver = n.pods[0].enter(silent).unwrap();
        let moment = Duration::from_millis(20);
        receiver.set_read_timeout(Some(moment)).unwrap();
        let mut desired = dns(&[0], &[0]);
        for port in desired.v4.services.values_mut() {
            port.cluster.iter_mut().for_each(|e| e.addr.set_port(9000));
            port.serving.iter_mut().for_each(|addr| addr.set_port(9000));
        }
        n.sync(&desired);
        let Client(sender) = Client::new(&n.client, VIP);
        let mut room = [0; 10];
        let mut arrives = || std::iter::from_fn(|| receiver.recv(&mut room).ok()).count() > 0;
        let arrived = (0..50).any(|_| {
            sender.send(b"count").unwrap();
            arrives()
        });
        assert!(arrived);
        n.sync(&dns(&[], &[]));
        arrives();
        let told = (0..50).any(|_| {
            let refused = sender.send(b"count").is_err();
            assert!(!arrives(), "nothing goes to who has gone");
            refused
        });
        assert!(told, "the sender is refused");
        assert_eq!(entries(&n, "src=10.244.0.2 "), [""; 0]);
    });
}

/// The stream is there before this node has an endpoint, while others have.
#[test]
fn p1_t11_u14_a_udp_stream_from_outside_follows_this_nodes_endpoints_with_its_address() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.outside.ip("route replace 192.0.2.10/32 via 192.168.60.1");
        n.outside.ip("route replace 192.168.60.1/32 dev eth0");
        let local = |here: &[u8], pod: u8| {
            let mut desired = dns(&[pod], here);
            let pods = vec!["10.244.0.0/16".parse().unwrap()];
            desired.v4.local_sources = LocalSources::Networks(pods);
            for port in desired.v4.services.values_mut() {
                port.external = TrafficPolicy::Local;
                let balanced = Frontend {
                    addr: "192.0.2.10".parse().unwrap(),
                    kind: FrontendKind::LoadBalancer,
                    ..port.frontends[0]
                };
                port.frontends.push(balanced);
                port.cluster
                    .iter_mut()
                    .for_each(|e| e.local = !here.is_empty());
                port.local = port.cluster.clone();
                port.local.retain(|e| e.local);
            }
            desired
        };
        n.sync(&local(&[], 1));
        let clients = [NODE, "192.0.2.10:80"].map(|to| Client::new(&n.outside, to));
        for client in &clients {
            client.0.send(b"who?").unwrap();
            client.0.send(b"who?").unwrap();
        }
        for pod in [0, 1, 0] {
            n.sync(&local(&[pod], pod));
            all_answered(&clients, &format!("pod{pod}"));
        }
        for client in &clients {
            client.0.send(b"who?").unwrap();
            let mut room = [0; 100];
            let length = client.0.recv(&mut room).unwrap();
            let seen = String::from_utf8_lossy(&room[..length]).into_owned();
            assert!(seen.starts_with(&format!("pod0 {OUTSIDE}:")), "{seen}");
        }
    });
}
