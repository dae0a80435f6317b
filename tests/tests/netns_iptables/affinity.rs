//! Clients come back to the endpoint that they have met.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{
    DesiredState, Frontend, FrontendKind, LocalSources, TrafficPolicy,
};
use seaway_proxy_iptables::Iptables;
use seaway_testbed::peer::{PATIENCE, Protocol};
use seaway_testbed::{Netns, uninterrupted};

use crate::node::{Node, VIP, answers, block_on, config, each_flavour, names, web};

/// The node's uplink address, at the NodePort of every Service port here.
const NODE_PORT: &str = "192.168.60.1:30001";

/// The Service with affinity for `seconds`, also at a NodePort.
fn sticky(pods: u8, seconds: u64) -> DesiredState {
    let mut desired = web(pods);
    for port in desired.v4.services.values_mut() {
        port.affinity = Some(Duration::from_secs(seconds));
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        port.local = port.cluster.clone();
    }
    desired
}

/// The one that answers every time.
#[track_caller]
fn only(from: &Netns, protocol: Protocol, address: &str) -> String {
    let answers = answers(from, protocol, address);
    let names = names(&answers);
    assert_eq!(names.len(), 1, "{names:?}");
    names.into_iter().next().unwrap().to_owned()
}

fn sets(n: &Node) -> Vec<String> {
    let listed = n.host.must_run(&["ipset", "list", "-n"]);
    listed.lines().map(str::to_owned).collect()
}

/// How many clients are remembered, over all sets.
fn entries(n: &Node) -> usize {
    let dump = n.host.must_run(&["ipset", "save"]);
    dump.lines().filter(|line| line.starts_with("add ")).count()
}

/// Cases 180, 181, 184, 185, 187, 189, 190.
#[test]
fn a_client_comes_back_to_its_endpoint() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        assert!(n.sync(&sticky(2, 10_800)));
        assert!(
            !n.sync(&sticky(2, 10_800)),
            "what was read is what was written"
        );
        // Rules name sets, of which the kernel tells numbers.
        let rendered = n.backend.render(&sticky(2, 10_800));
        assert_eq!(n.read_without_save(), rendered);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let first = only(&n.client, protocol, VIP);
            assert_eq!(
                only(&n.client, protocol, NODE_PORT),
                first,
                "on every address"
            );
            // The daemon starts again.
            n.backend = n
                .host
                .enter(|| block_on(Iptables::new(config(flavour))))
                .unwrap();
            assert!(!n.sync(&sticky(2, 10_800)));
            assert_eq!(only(&n.client, protocol, VIP), first);
        }
        // Its endpoint goes, and comes back: the client has moved and stays there.
        assert!(n.sync(&sticky(1, 10_800)));
        assert_eq!(only(&n.client, Protocol::Tcp, VIP), "pod0");
        assert!(n.sync(&sticky(2, 10_800)));
        assert_eq!(only(&n.client, Protocol::Tcp, VIP), "pod0");

        assert!(n.sync(&web(2)));
        let both = BTreeSet::from(["pod0", "pod1"]);
        assert_eq!(
            names(&answers(&n.client, Protocol::Tcp, VIP)),
            both,
            "switched off"
        );
        assert!(sets(&n).is_empty(), "{:?}", sets(&n));
    });
}

/// Case 188.
#[test]
fn among_local_endpoints_too() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = sticky(2, 10_800);
        let pods = vec!["10.244.0.0/16".parse().unwrap()];
        desired.v4.local_sources = LocalSources::Networks(pods);
        for port in desired.v4.services.values_mut() {
            port.external = TrafficPolicy::Local;
        }
        n.sync(&desired);
        let first = only(&n.outside, Protocol::Tcp, NODE_PORT);
        // It stays when others join, as long as it is there.
        for port in desired.v4.services.values_mut() {
            port.local.retain(|e| {
                first == format!("pod{}", e.addr.ip().to_string().as_bytes()[7] - b'0')
            });
            assert_eq!(port.local.len(), 1);
        }
        n.sync(&desired);
        assert_eq!(only(&n.outside, Protocol::Tcp, NODE_PORT), first);
        let seen = n.outside.ask(Protocol::Tcp, NODE_PORT).unwrap().client;
        assert_eq!(seen.ip().to_string(), crate::node::OUTSIDE);
    });
}

/// Case 186: what a client has met at one port says nothing about another.
#[test]
fn ports_of_one_service_choose_for_themselves() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&sticky(2, 10_800));
        n.host.ip("route add 10.9.0.0/24 via 10.244.9.2");
        let mut differ = 0;
        for i in 1..=30 {
            n.client.ip(&format!("addr add 10.9.0.{i}/32 dev lo"));
            n.client.ip(&format!(
                "route replace default via 10.244.9.1 src 10.9.0.{i}"
            ));
            let both = || {
                [Protocol::Tcp, Protocol::Udp].map(|protocol| {
                    let answer = n.client.ask(protocol, VIP).unwrap();
                    assert_eq!(answer.client.ip().to_string(), format!("10.9.0.{i}"));
                    answer.name
                })
            };
            let met = both();
            assert_eq!(both(), met, "each port keeps its choice");
            differ += u32::from(met[0] != met[1]);
        }
        // All alike, or all different, by chance: once in 2^29.
        assert!((1..30).contains(&differ), "{differ} of 30");
    });
}

/// Cases 182 and 183.
#[test]
fn a_client_is_forgotten_after_a_while() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&sticky(2, 2));
        // Every connection begins the time anew: three times as long altogether.
        let start = Instant::now();
        let mut met = BTreeSet::new();
        while start.elapsed() < Duration::from_secs(6) {
            met.insert(n.client.ask_tcp(VIP).unwrap());
        }
        assert_eq!(met.len(), 1, "{met:?}");

        n.sync(&sticky(2, 1));
        let mut met = BTreeSet::new();
        for _ in 0..20 {
            met.insert(n.client.ask_tcp(VIP).unwrap());
            if met.len() == 2 {
                return;
            }
            let asked = Instant::now();
            while entries(&n) > 0 {
                assert!(
                    asked.elapsed() < PATIENCE + Duration::from_secs(3),
                    "never forgotten"
                );
            }
        }
        panic!("{met:?} of two in 20 rounds: one in a million");
    });
}

/// Far more than the 100 of `xt_recent`.
#[test]
fn a_thousand_clients_keep_their_endpoints() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&sticky(2, 10_800));
        n.client.ip("route add local 10.9.0.0/16 dev lo");
        n.host.ip("route add 10.9.0.0/16 via 10.244.9.2");
        let ask = |i: u16| {
            let [high, low] = i.to_be_bytes();
            let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, high, low), 0)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect(VIP).unwrap();
            socket.send(b"?").unwrap();
            let mut answer = [0; 100];
            let length = uninterrupted(|| socket.recv(&mut answer)).unwrap();
            let text = String::from_utf8_lossy(&answer[..length]).into_owned();
            text.split(' ').next().unwrap().to_owned()
        };
        let round = || -> BTreeMap<u16, String> { (1..=1000).map(|i| (i, ask(i))).collect() };
        let first = n.client.enter(round);
        assert_eq!(first.values().collect::<BTreeSet<_>>().len(), 2);
        let second = n.client.enter(round);
        let moved = first.iter().filter(|(i, name)| second[i] != **name).count();
        assert_eq!(moved, 0, "of 1,000 clients");
        assert_eq!(entries(&n), 1000);
        n.remove_all();
        assert!(sets(&n).is_empty(), "{:?}", sets(&n));
    });
}

#[test]
fn a1_affinity_holds_on_every_address_under_policy_local() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = sticky(2, 10_800);
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
        }
        n.sync(&desired);
        let first = only(&n.outside, Protocol::Tcp, NODE_PORT);
        n.outside.ip("route replace 192.0.2.10/32 via 192.168.60.1");
        assert_eq!(only(&n.outside, Protocol::Tcp, "192.0.2.10:80"), first);
    });
}

#[test]
fn a4_affinity_works_again_after_there_was_nobody() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&sticky(2, 10_800));
        only(&n.client, Protocol::Tcp, VIP);
        n.sync(&sticky(0, 10_800));
        n.client.ask(Protocol::Tcp, VIP).unwrap_err();
        n.sync(&sticky(2, 10_800));
        only(&n.client, Protocol::Tcp, VIP);
    });
}
