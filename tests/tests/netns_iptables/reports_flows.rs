//! What users of other service proxies have reported, in the small world of the table of flows.

use std::io::ErrorKind;
use std::net::IpAddr;

use seaway_proxy_core::desired::{Family, Protocol};
use seaway_proxy_core::flows::{Client, ENDPOINT_PORT, Flow, Given};
use seaway_proxy_core::node;
use seaway_proxy_iptables::{Config, Flavour};
use seaway_testbed::peer::{Held, PATIENCE};
use seaway_testbed::require_root;

use crate::flows::World;
use crate::reports_tcp::dial;

const CLUSTER_IP: &str = "172.30.0.41:80";
const NODE_PORT: &str = "192.168.0.2:30001";
const NODE_PORT_2: &str = "192.168.1.2:30001";
const VIP: &str = "1.2.3.4:80";
const EXTERNAL_IP: &str = "192.168.99.11:80";
/// The same port by TCP and UDP.
const BOTH: &str = r#"{"ports": [
    {"name": "http", "port": 80, "nodePort": 30001},
    {"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30001}]}"#;

/// A world with a Service in it. One flavour will do where rules are the same in both.
struct Case {
    world: World,
    given: Given,
    family: Family,
    _run_dir: tempfile::TempDir,
}

impl Case {
    fn new(family: Family, spec: &'static str, endpoints: &'static str) -> Self {
        let run_dir = tempfile::tempdir().unwrap();
        let config = Config {
            flavour: Some(Flavour::Nft),
            run_dir: run_dir.path().to_owned(),
            ..Config::default()
        };
        let mut case = Self {
            world: World::new(config, family),
            given: Given {
                spec,
                endpoints,
                node: |_| {},
            },
            family,
            _run_dir: run_dir,
        };
        case.sync();
        case
    }

    fn sync(&mut self) {
        self.world.sync(&self.given.compiled(self.family).desired);
    }

    fn given(&mut self, spec: &'static str, endpoints: &'static str, node: fn(&mut node::Node)) {
        self.given = Given {
            spec,
            endpoints,
            node,
        };
        self.sync();
    }

    fn flow(&self, from: Client, to: &'static str, protocol: Protocol) -> Flow {
        Flow {
            cases: &[],
            family: self.family,
            given: self.given,
            from,
            to,
            protocol,
            expect: "untouched",
        }
    }

    #[track_caller]
    fn ends(&self, from: Client, to: &'static str, protocol: Protocol, expect: &'static str) {
        let flow = Flow {
            expect,
            ..self.flow(from, to, protocol)
        };
        if let Err(error) = self.world.check(&flow) {
            panic!("{from:?} to {to} by {protocol}: {error}");
        }
    }
}

#[test]
fn h1_a_pod_reaches_itself_by_every_address_and_protocol_in_both_families() {
    if !require_root() {
        return;
    }
    for family in Family::ALL {
        let case = Case::new(family, BOTH, "h1");
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for to in [CLUSTER_IP, NODE_PORT, VIP, EXTERNAL_IP] {
                case.ends(Client::Endpoint, to, protocol, "h1 as node");
            }
        }
    }
}

#[test]
fn h2_a_pod_that_no_node_is_named_for_reaches_itself() {
    if !require_root() {
        return;
    }
    let mut case = Case::new(Family::V4, BOTH, "h1");
    let mut desired = case.given.compiled(Family::V4).desired;
    for port in desired.v4.services.values_mut() {
        port.local.clear();
        port.cluster[0].local = false;
        port.unplaced = vec![port.cluster[0].addr.ip()];
    }
    case.world.sync(&desired);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        case.ends(Client::Endpoint, CLUSTER_IP, protocol, "h1 as node");
        case.ends(Client::Pod, CLUSTER_IP, protocol, "h1 as client");
    }
}

#[test]
fn n1_node_ports_on_loopback_are_served_or_refused_and_never_a_pods() {
    if !require_root() {
        return;
    }
    let mut case = Case::new(Family::V4, BOTH, "h1 t1");
    let loopback = "127.0.0.1:30001";
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        case.ends(Client::Loopback, loopback, protocol, "h1 t1 as node");
    }
    let refused = |case: &Case, from| {
        let asked = case.world.ask(&case.flow(from, loopback, Protocol::Tcp));
        asked.unwrap_err().kind() == ErrorKind::ConnectionRefused
    };
    assert!(refused(&case, Client::Pod), "a pod's loopback is its own");
    case.given(BOTH, "h1 t1", |node| node.localhost_node_ports = false);
    assert!(refused(&case, Client::Loopback));
    let v6 = Case::new(Family::V6, BOTH, "h1 t1");
    let asked = v6.world.node.ask_tcp("[::1]:30001");
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn n7_masquerade_never_picks_a_link_local_address() {
    if !require_root() {
        return;
    }
    let case = Case::new(Family::V6, BOTH, "h1 t1");
    let flow = case.flow(Client::Outside, NODE_PORT, Protocol::Tcp);
    for _ in 0..20 {
        let IpAddr::V6(seen) = case.world.ask(&flow).unwrap().client.ip() else {
            panic!("an address of IPv4");
        };
        assert!(!seen.is_unicast_link_local(), "{seen}");
    }
}

#[test]
fn o2_a_service_that_is_no_longer_exposed_keeps_its_connections() {
    if !require_root() {
        return;
    }
    let spec = r#"{"loadBalancerSourceRanges": ["203.0.113.0/25"]}"#;
    let mut case = Case::new(Family::V4, spec, "h1");
    case.ends(Client::Outside, VIP, Protocol::Tcp, "h1 as node");
    case.ends(Client::Blocked, VIP, Protocol::Tcp, "unanswered");
    let address = CLUSTER_IP.parse().unwrap();
    let open = || Held::open(address, PATIENCE);
    let mut held = case.world.client.enter(open).unwrap();
    let plain = r#"{"type": "ClusterIP", "externalIPs": null, "healthCheckNodePort": null,
        "ingress": [], "ports": [{"name": "http", "port": 80}]}"#;
    case.given(plain, "h1", |_| {});
    held.check().expect("what is connected stays connected");
    for to in [NODE_PORT, VIP, EXTERNAL_IP] {
        case.ends(Client::Outside, to, Protocol::Tcp, "untouched");
    }
    case.ends(Client::Blocked, VIP, Protocol::Tcp, "untouched");
    case.ends(Client::Pod, CLUSTER_IP, Protocol::Tcp, "h1 as client");
}

#[test]
fn r7_the_node_reaches_a_remote_pod_by_its_node_port_at_the_first_packet() {
    if !require_root() {
        return;
    }
    let case = Case::new(Family::V4, BOTH, "t1");
    let node = &case.world.node;
    let before = node.repeated_syns();
    for n in 0..100 {
        assert_eq!(node.ask_tcp(NODE_PORT).unwrap(), "t1");
        assert_eq!(node.repeated_syns(), before, "connection {n}");
    }
}

#[test]
fn a7_a_client_comes_back_in_ipv6() {
    if !require_root() {
        return;
    }
    let case = Case::new(
        Family::V6,
        r#"{"sessionAffinity": "ClientIP"}"#,
        "h1 h2 t1 t2",
    );
    for to in [CLUSTER_IP, NODE_PORT, VIP] {
        let flow = case.flow(Client::Pod, to, Protocol::Tcp);
        let first = case.world.ask(&flow).unwrap().name;
        for _ in 0..15 {
            assert_eq!(case.world.ask(&flow).unwrap().name, first, "{to}");
        }
    }
}

/// Both have the same tuple on the way back, so one must get another port.
#[test]
fn a8_one_port_of_a_client_may_come_to_one_endpoint_by_two_addresses() {
    if !require_root() {
        return;
    }
    let case = Case::new(Family::V4, r#"{"externalTrafficPolicy": "Local"}"#, "h1");
    let opened = case.world.outside.enter(|| {
        let first = dial(40_000, NODE_PORT).unwrap();
        (first, dial(40_000, NODE_PORT_2).unwrap())
    });
    let ((_first, one), (_second, other)) = opened;
    for greeting in [&one, &other] {
        assert!(greeting.starts_with("h1 203.0.113.2:"), "{greeting}");
    }
    assert_ne!(one, other, "at port {ENDPOINT_PORT}");
}
