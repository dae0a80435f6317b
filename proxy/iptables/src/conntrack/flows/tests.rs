#![allow(clippy::unwrap_used, reason = "tests")]

use seaway_proxy_core::desired::{Endpoint, Frontend, ServicePort, ServicePortName};

use super::*;

const VIP: &str = "10.96.0.10:53";
const POD: &str = "10.244.0.2:5353";

fn flows(protocol: Protocol, serving: &[&str]) -> Flows {
    let frontend = |addr: &str, kind| {
        let addr: SocketAddr = addr.parse().unwrap();
        Frontend {
            addr: addr.ip(),
            port: addr.port(),
            protocol,
            kind,
        }
    };
    let serving: Vec<SocketAddr> = serving.iter().map(|addr| addr.parse().unwrap()).collect();
    let endpoint = |&addr: &SocketAddr| Endpoint { addr, local: false };
    let port = ServicePort {
        frontends: vec![
            frontend(VIP, FrontendKind::ClusterIp),
            frontend("0.0.0.0:30053", FrontendKind::NodePort),
        ],
        // What policies and hints leave for new flows.
        cluster: serving.iter().take(1).map(endpoint).collect(),
        serving,
        ..ServicePort::default()
    };
    let name = ServicePortName {
        namespace: "default".to_owned(),
        name: "dns".to_owned(),
        port: String::new(),
    };
    let mut half = FamilyState::default();
    half.services.insert(name, port);
    Flows::of(&half)
}

fn is_stale(to: &str, answers: &str, now: &Flows, before: &Flows) -> bool {
    let entry = Entry {
        protocol: Protocol::Udp,
        to: to.parse().unwrap(),
        answers: answers.parse().unwrap(),
        key: Vec::new(),
    };
    let own = BTreeSet::from(["192.168.60.1".parse().unwrap()]);
    stale(&entry, &own, now, before)
}

#[test]
fn a_flow_is_stale_if_nobody_serves_where_it_goes() {
    let none = Flows::default();
    let (one, two) = (
        flows(Protocol::Udp, &[POD]),
        flows(Protocol::Udp, &["10.244.0.1:5353", POD]),
    );
    let empty = flows(Protocol::Udp, &[]);
    let node = "192.168.60.1:30053";
    let outside = "198.51.100.1:30053";
    for (to, answers, now, before, expect) in [
        // In spite of policies and hints, and without a word of what was before.
        (VIP, POD, &two, &none, false),
        (VIP, POD, &one, &two, false),
        (VIP, "10.244.0.1:5353", &one, &none, true),
        // The targetPort is another one now.
        (VIP, "10.244.0.2:53", &one, &none, true),
        // Let through untranslated while there was no rule.
        (VIP, VIP, &one, &none, true),
        (node, node, &one, &none, true),
        // All endpoints have gone.
        (VIP, POD, &empty, &none, true),
        (node, POD, &empty, &none, true),
        (node, POD, &one, &none, false),
        // On other hosts, and other ports: somebody else's.
        (outside, outside, &one, &none, false),
        (outside, outside, &empty, &one, false),
        ("192.168.60.1:53", "192.168.60.1:53", &empty, &none, false),
        ("10.96.0.10:54", "10.96.0.10:54", &empty, &none, false),
        // The Service is no more.
        (VIP, POD, &none, &one, true),
        (node, POD, &none, &one, true),
        (VIP, VIP, &none, &one, false),
        (VIP, POD, &none, &none, false),
    ] {
        assert_eq!(
            is_stale(to, answers, now, before),
            expect,
            "{to} answered by {answers}"
        );
    }
}

#[test]
fn connections_of_tcp_are_left_alone() {
    assert!(flows(Protocol::Tcp, &[POD]).is_empty());
    let sctp = flows(Protocol::Sctp, &[]);
    assert!(!is_stale(VIP, POD, &sctp, &Flows::default()), "not of UDP");
}

/// It is not known where NodePorts were served.
#[test]
fn of_an_earlier_run_nodeports_count_at_all_addresses_of_the_node() {
    let names = flows(Protocol::Udp, &[POD]).names();
    let (none, before) = (Flows::default(), Flows::named(&names));
    for (to, want) in [
        (VIP, true),
        ("192.168.60.1:30053", true),
        ("127.0.0.1:30053", true),
        ("192.168.60.2:30053", false),
    ] {
        assert_eq!(is_stale(to, POD, &none, &before), want, "{to}");
    }
}
