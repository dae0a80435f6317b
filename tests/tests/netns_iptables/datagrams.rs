//! A client of UDP that keeps its port while a Service changes by more than its pods, whose every
//! answer is as the interpreter says.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Frontend, FrontendKind, LocalSources, Protocol, TrafficPolicy,
};
use seaway_proxy_core::interpret::{Outcome, Packet, Seen, interpret, interpret_next};
use seaway_testbed::{peer, uninterrupted};

use crate::node::{Node, VIP, Who, config, each_flavour, endpoint, packet, web};

const NODE_PORT: &str = "192.168.60.1:30001";
/// Where the first pod listens as well, by another name.
const MOVED: (&str, &str) = ("moved", "10.244.0.2:9090");
/// The kernel may lose a datagram while a link comes up; one that is black-holed loses all.
const TRIES: usize = 3;

struct Client {
    socket: UdpSocket,
    packet: Packet,
    /// Nobody at first.
    met: Option<(SocketAddr, Seen)>,
}

impl Client {
    fn new(n: &Node, who: Who, to: &str) -> Self {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            socket.connect(to)?;
            Ok(socket)
        };
        Self {
            socket: n.namespace(who).enter(open).unwrap(),
            packet: packet(who, peer::Protocol::Udp, to),
            met: None,
        }
    }

    fn answer(&self) -> io::Result<String> {
        self.socket.send(b"who?")?;
        let mut room = [0; 100];
        let length = uninterrupted(|| self.socket.recv(&mut room))?;
        Ok(String::from_utf8_lossy(&room[..length]).into_owned())
    }

    /// Who answers the next datagram.
    #[track_caller]
    fn ask(&mut self, n: &Node) -> String {
        let (own, packet) = (n.own_addresses(), &self.packet);
        let outcome = match self.met {
            None => interpret(&n.desired, &own, packet),
            met => interpret_next(&n.desired, &own, packet, met),
        };
        let answer = (0..TRIES).find_map(|_| self.answer().ok());
        let answer = answer.unwrap_or_else(|| panic!("nobody answers: {outcome:?}"));
        let (name, client) = answer.trim_end().split_once(' ').unwrap();
        let client: SocketAddr = client.parse().unwrap();
        let addr = if name == MOVED.0 {
            MOVED.1.parse().unwrap()
        } else {
            endpoint(name)
        };
        let seen = if client.ip() == packet.src {
            Seen::Client
        } else {
            assert!(own.contains(&client.ip()), "{answer}");
            Seen::Node
        };
        assert_eq!(outcome, Outcome::Answered([(addr, seen)].into()));
        self.met = Some((addr, seen));
        name.to_owned()
    }
}

/// The Service's port of UDP, also at a NodePort, with these endpoints on this node and on
/// others.
fn udp(policy: TrafficPolicy, here: &[SocketAddr], elsewhere: &[SocketAddr]) -> DesiredState {
    let mut desired = web(0);
    let pods = vec!["10.244.0.0/16".parse().unwrap()];
    desired.v4.local_sources = LocalSources::Networks(pods);
    let services = &mut desired.v4.services;
    services.retain(|name, _| name.port == "http-udp");
    let local = here.iter().map(|addr| Endpoint {
        addr: *addr,
        local: true,
    });
    let remote = elsewhere.iter().map(|addr| Endpoint {
        addr: *addr,
        local: false,
    });
    for port in desired.v4.services.values_mut() {
        port.external = policy;
        port.local = local.clone().collect();
        port.cluster = local.clone().chain(remote.clone()).collect();
        port.cluster.sort_unstable();
        port.serving = port.cluster.iter().map(|e| e.addr).collect();
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            protocol: Protocol::Udp,
            kind: FrontendKind::NodePort,
        });
    }
    desired
}

/// Case 205: the pod stays, and its Service means another of its ports.
#[test]
fn a_client_follows_the_target_port() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let _moved = n.pods[0].serve(peer::Protocol::Udp, MOVED.1, MOVED.0);
        n.sync(&udp(TrafficPolicy::Cluster, &[endpoint("pod0")], &[]));
        let mut clients = [
            Client::new(&n, Who::Client, VIP),
            Client::new(&n, Who::Host, VIP),
            Client::new(&n, Who::Outside, NODE_PORT),
        ];
        for client in &mut clients {
            assert_eq!(client.ask(&n), "pod0");
        }
        let moved = MOVED.1.parse().unwrap();
        n.sync(&udp(TrafficPolicy::Cluster, &[moved], &[]));
        for client in &mut clients {
            assert_eq!(client.ask(&n), MOVED.0);
        }
    });
}

/// Case 213: who has met another node's pod goes on there, with whom it takes for the client.
#[test]
fn a_client_stays_where_it_is_when_the_policy_becomes_local() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let (here, there) = ([endpoint("pod0")], [endpoint("pod1")]);
        n.sync(&udp(TrafficPolicy::Cluster, &[], &there));
        let mut client = Client::new(&n, Who::Outside, NODE_PORT);
        assert_eq!(client.ask(&n), "pod1");
        n.sync(&udp(TrafficPolicy::Local, &here, &there));
        assert_eq!(client.ask(&n), "pod1");
        let mut later = Client::new(&n, Who::Outside, NODE_PORT);
        assert_eq!(later.ask(&n), "pod0");
        n.sync(&udp(TrafficPolicy::Local, &here, &[]));
        for client in [&mut client, &mut later] {
            assert_eq!(client.ask(&n), "pod0");
        }
    });
}
