//! UDP clients that keep their source port while endpoints come and go, in both families.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Frontend, FrontendKind, LocalSources, Protocol, TrafficPolicy,
};
use seaway_proxy_iptables::{Config, Iptables};
use seaway_testbed::{peer, uninterrupted};

mod client;
mod failures;

use crate::dual::{NODE_V6, OUTSIDE_V6, VIP_V6, both, entries, node, track};
use crate::node::{Node, OUTSIDE, VIP, block_on, config, each_flavour, web};
use client::{Client, all_answered, ask_all, none_answered};

const NODE_PORT: u16 = 30053;
/// Of the node, beyond its uplink.
const NODE: &str = "192.168.60.1:30053";
const POD_PORT: u16 = 8080;
/// What flows that pod 0 answers have in them.
const OF_POD0: [&str; 2] = ["src=10.244.0.2 ", "src=fd00:a:f4::2 "];
/// What flows to [`VIP`] have in them.
const TO_VIP: [&str; 2] = ["dst=10.96.0.10 ", "dst=fd00:a:60::a "];

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
    both(desired)
}

/// The node's NodePort in IPv6.
fn node_v6() -> String {
    format!("[{NODE_V6}]:{NODE_PORT}")
}

/// Clients on a pod and on the node, of each kind of frontend, and one from outside, of
/// either family.
fn clients(n: &Node) -> Vec<Client> {
    n.outside.ip("route replace 192.168.60.1/32 dev eth0");
    let (mut clients, node_v6) = (Vec::new(), node_v6());
    for (vip, node) in [(VIP, NODE), (VIP_V6, node_v6.as_str())] {
        clients.extend([
            Client::new(&n.client, vip),
            Client::new(&n.host, vip),
            Client::new(&n.client, node),
            Client::new(&n.outside, node),
        ]);
    }
    clients
}

/// The daemon ends and starts: nothing of it is remembered.
fn restart(n: &mut Node, config: Config) {
    n.backend = n.host.enter(|| block_on(Iptables::new(config))).unwrap();
}

/// conntrack's numbers of entries.
fn ids(entries: &[String]) -> Vec<String> {
    let id = |line: &String| line.rsplit("id=").next().unwrap().to_owned();
    let mut ids: Vec<String> = entries.iter().map(id).collect();
    ids.sort();
    ids
}

#[test]
fn a_udp_client_follows_the_endpoints() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
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
        let (mut n, _servers) = node(flavour);
        // Without rules its datagrams leave untranslated, and conntrack remembers that.
        track(&n);
        let clients = clients(&n);
        ask_all(&clients);
        for part in TO_VIP {
            assert!(!entries(&n, "udp", &[part]).is_empty(), "{part}");
        }
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
        n.sync(&dns(&[], &[]));
        none_answered(&clients, "pod0");
        n.sync(&dns(&[1], &[1]));
        all_answered(&clients, "pod1");
    });
}

#[test]
fn no_udp_flow_goes_on_to_the_last_endpoint_when_it_has_gone() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        for part in OF_POD0 {
            assert!(!entries(&n, "udp", &[part]).is_empty(), "{part}");
        }
        n.sync(&dns(&[], &[]));
        assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
        none_answered(&clients, "pod0");
        assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
        // Nor when the Service itself goes.
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
        n.sync(&DesiredState::default());
        assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
    });
}

/// One family's clean-up does not touch the other's flows.
#[test]
fn a_udp_flow_of_one_family_stays_when_the_other_familys_endpoint_goes() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        let (there, gone) = (dns(&[0], &[0]), dns(&[1], &[1]));
        n.sync(&there);
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        let (v4, v6) = clients.split_at(clients.len() / 2);
        let before = entries(&n, "udp", &OF_POD0[..1]);
        assert_eq!(before.len(), v4.len());
        n.sync(&DesiredState {
            v4: there.v4.clone(),
            v6: gone.v6.clone(),
        });
        all_answered(v4, "pod0");
        all_answered(v6, "pod1");
        assert_eq!(ids(&entries(&n, "udp", &OF_POD0[..1])), ids(&before));
        assert_eq!(entries(&n, "udp", &OF_POD0[1..]), [""; 0]);
        // The Service is of IPv6 alone from now on.
        n.sync(&DesiredState {
            v6: there.v6,
            ..DesiredState::default()
        });
        assert_eq!(entries(&n, "udp", &OF_POD0[..1]), [""; 0]);
        all_answered(v6, "pod0");
    });
}

#[test]
fn a_restart_finds_stale_udp_flows_and_leaves_the_others() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&dns(&[0, 1], &[0, 1]));
        let to = [VIP, VIP_V6].repeat(20);
        let clients: Vec<Client> = to.iter().map(|to| Client::new(&n.client, to)).collect();
        let before = ask_all(&clients);
        let known = entries(&n, "udp", &TO_VIP);
        assert_eq!(known.len(), 40);
        restart(&mut n, config(flavour));
        assert!(!n.sync(&dns(&[0, 1], &[0, 1])));
        assert_eq!(before, ask_all(&clients));
        assert_eq!(ids(&known), ids(&entries(&n, "udp", &TO_VIP)));
        // An endpoint goes while nobody looks.
        restart(&mut n, config(flavour));
        n.sync(&dns(&[1], &[1]));
        all_answered(&clients, "pod1");
    });
}

#[test]
fn flows_to_other_hosts_are_nobodys_business() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        let far = [
            format!("{OUTSIDE}:{NODE_PORT}"),
            format!("[{OUTSIDE_V6}]:{NODE_PORT}"),
        ];
        let serve = |at: &String| n.outside.serve(peer::Protocol::Udp, at, "far");
        let _far = far.each_ref().map(serve);
        track(&n);
        let clients = far.each_ref().map(|at| Client::new(&n.client, at));
        all_answered(&clients, "far");
        let parts = [format!("dst={OUTSIDE} "), format!("dst={OUTSIDE_V6} ")];
        let parts = parts.each_ref().map(String::as_str);
        let before = entries(&n, "udp", &parts);
        assert_eq!(before.len(), 2);
        n.sync(&dns(&[0], &[0]));
        n.sync(&dns(&[1], &[1]));
        assert_eq!(ids(&before), ids(&entries(&n, "udp", &parts)));
    });
}

/// Who never gets an answer keeps conntrack's entry alive by sending alone.
#[test]
fn u2_u11_a_one_way_sender_does_not_reach_an_endpoint_that_has_gone() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        for (vip, pod) in [(VIP, "10.244.0.2:9000"), (VIP_V6, "[fd00:a:f4::2]:9000")] {
            let silent = || UdpSocket::bind(pod);
            let receiver = n.pods[0].enter(silent).unwrap();
            let moment = Duration::from_millis(20);
            receiver.set_read_timeout(Some(moment)).unwrap();
            let mut desired = dns(&[0], &[0]);
            for port in desired.v4.services.values_mut() {
                port.cluster.iter_mut().for_each(|e| e.addr.set_port(9000));
                port.serving.iter_mut().for_each(|addr| addr.set_port(9000));
            }
            n.sync(&both(desired));
            let Client(sender) = Client::new(&n.client, vip);
            let mut room = [0; 10];
            let mut next = || uninterrupted(|| receiver.recv(&mut room)).ok();
            let mut arrives = || std::iter::from_fn(&mut next).count() > 0;
            let arrived = (0..50).any(|_| {
                sender.send(b"count").unwrap();
                arrives()
            });
            assert!(arrived, "{vip}");
            n.sync(&dns(&[], &[]));
            arrives();
            let told = (0..50).any(|_| {
                let refused = sender.send(b"count").is_err();
                assert!(!arrives(), "nothing goes to who has gone");
                refused
            });
            assert!(told, "the sender to {vip} is refused");
            assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
        }
    });
}

/// The stream is there before this node has an endpoint, while others have.
#[test]
fn p1_t11_u14_a_udp_stream_from_outside_follows_this_nodes_endpoints_with_its_address() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
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
            both(desired)
        };
        n.sync(&local(&[], 1));
        let node_v6 = node_v6();
        let to = [
            NODE,
            "192.0.2.10:80",
            node_v6.as_str(),
            "[fd00:c0::2:0:a]:80",
        ];
        let clients = to.map(|to| Client::new(&n.outside, to));
        for client in &clients {
            client.0.send(b"who?").unwrap();
            client.0.send(b"who?").unwrap();
        }
        for pod in [0, 1, 0] {
            n.sync(&local(&[pod], pod));
            all_answered(&clients, &format!("pod{pod}"));
        }
        for (client, from) in clients
            .iter()
            .zip([OUTSIDE, OUTSIDE, OUTSIDE_V6, OUTSIDE_V6])
        {
            client.0.send(b"who?").unwrap();
            let mut room = [0; 100];
            let length = uninterrupted(|| client.0.recv(&mut room)).unwrap();
            let seen = String::from_utf8_lossy(&room[..length]).into_owned();
            let (name, client) = seen.trim_end().split_once(' ').unwrap();
            let client: SocketAddr = client.parse().unwrap();
            assert_eq!((name, client.ip().to_string().as_str()), ("pod0", from));
        }
    });
}
