//! The interpreter on flows and connections that live through changes of Services, and on
//! new ones while a Service changes under them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use seaway_proxy_core::desired::{DesiredState, Family, Protocol};
use seaway_proxy_core::flows::{Client, Flow, Given, endpoint};
use seaway_proxy_core::interpret::{Outcome, Packet, Seen, interpret, interpret_next};
use seaway_proxy_core::{Model, Node, compile};
use serde_json::{Value, json};

const CLUSTER_IP: &str = "172.30.0.41:80";
const NODE_PORT: &str = "192.168.0.2:30001";
const VIP: &str = "1.2.3.4:80";
const PLAIN: &str = "{}";
const NO_ADDRESS: &str = r#"{"clusterIP": "None"}"#;
const UDP: &str =
    r#"{"ports": [{"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30001}]}"#;
const UDP_ITP_LOCAL: &str = r#"{"internalTrafficPolicy": "Local",
    "ports": [{"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30001}]}"#;
const UDP_ETP_LOCAL: &str = r#"{"externalTrafficPolicy": "Local",
    "ports": [{"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30001}]}"#;

/// A client that keeps its port, while the Service's spec and endpoints change: each with how
/// its next packet ends.
struct History {
    cases: &'static [u16],
    protocol: Protocol,
    from: Client,
    to: &'static str,
    steps: &'static [(&'static str, &'static str, &'static str)],
}

const HISTORIES: [History; 11] = [
    History {
        cases: &[49, 210],
        protocol: Protocol::Tcp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[
            (PLAIN, "h1", "h1 as client"),
            (PLAIN, "", "h1 as client"),
            (PLAIN, "h2", "h1 as client"),
        ],
    },
    History {
        cases: &[200],
        protocol: Protocol::Udp,
        from: Client::Outside,
        to: NODE_PORT,
        steps: &[(UDP, "h1", "h1 as node"), (UDP, "h2", "h2 as node")],
    },
    History {
        cases: &[201],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[(UDP, "h1", "h1 as client"), (UDP, "h2", "h2 as client")],
    },
    // A pod of a DaemonSet restarts.
    History {
        cases: &[202],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[
            (UDP_ITP_LOCAL, "h1", "h1 as client"),
            (UDP_ITP_LOCAL, "h1:gone", "refused"),
            (UDP_ITP_LOCAL, "h2:gone", "refused"),
            (UDP_ITP_LOCAL, "h2", "h2 as client"),
        ],
    },
    History {
        cases: &[203],
        protocol: Protocol::Udp,
        from: Client::Node,
        to: CLUSTER_IP,
        steps: &[(UDP, "h1", "h1 as node"), (UDP, "h2", "h2 as node")],
    },
    History {
        cases: &[204],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[
            (NO_ADDRESS, "", "untouched"),
            (UDP, "h1", "h1 as client"),
            (UDP, "h1:leaving", "h1 as client"),
        ],
    },
    History {
        cases: &[206],
        protocol: Protocol::Udp,
        from: Client::Outside,
        to: VIP,
        steps: &[
            (UDP, "h1", "h1 as node"),
            (UDP, "t1", "t1 as node"),
            (UDP, "t1:gone h2", "h2 as node"),
        ],
    },
    History {
        cases: &[207],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[
            (UDP, "h1", "h1 as client"),
            (UDP, "h1:leaving h2", "h1 as client"),
            (UDP, "h1:gone h2", "h2 as client"),
        ],
    },
    History {
        cases: &[208],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: CLUSTER_IP,
        steps: &[
            (UDP, "h1", "h1 as client"),
            (UDP, "", "refused"),
            (UDP, "h2", "h2 as client"),
        ],
    },
    History {
        cases: &[209],
        protocol: Protocol::Udp,
        from: Client::Pod,
        to: "198.51.100.7:30001",
        steps: &[(UDP, "h1", "untouched"), (UDP, "h2", "untouched")],
    },
    // Whoever comes now meets those of this node.
    History {
        cases: &[213],
        protocol: Protocol::Udp,
        from: Client::Outside,
        to: VIP,
        steps: &[
            (UDP, "t1", "t1 as node"),
            (UDP_ETP_LOCAL, "h1 t1", "t1 as node"),
            (UDP_ETP_LOCAL, "h1 t1:gone", "h1 as client"),
        ],
    },
];

impl History {
    fn flows(&self, family: Family) -> impl Iterator<Item = Flow> {
        let steps = self.steps.iter();
        steps.map(move |&(spec, endpoints, expect)| Flow {
            cases: self.cases,
            family,
            given: Given {
                spec,
                endpoints,
                node: |_| {},
            },
            from: self.from,
            to: self.to,
            protocol: self.protocol,
            expect,
        })
    }

    /// How each packet ends.
    fn ends(&self, family: Family) -> Vec<Outcome> {
        // Whether there is a flow, and whom it has met, if it was translated.
        let (mut begun, mut met) = (false, None);
        let next = |flow: Flow| {
            let desired = flow.given.compiled(family).desired;
            let (own, packet) = (flow.node_addresses(), flow.packet());
            let outcome = if begun {
                interpret_next(&desired, &own, &packet, met)
            } else {
                interpret(&desired, &own, &packet)
            };
            begun = matches!(outcome, Outcome::Answered(_) | Outcome::Untouched);
            met = None;
            if let Outcome::Answered(by) = &outcome {
                assert_eq!(by.len(), 1, "{:?}: by chance", self.cases);
                met = by.first_key_value().map(|(addr, seen)| (*addr, *seen));
            }
            outcome
        };
        self.flows(family).map(next).collect()
    }
}

#[test]
fn who_keeps_a_port_goes_on_as_long_as_it_should() {
    for family in Family::ALL {
        for history in &HISTORIES {
            let expected: Vec<Outcome> = history.flows(family).map(|f| f.expected()).collect();
            let (cases, ends) = (history.cases, history.ends(family));
            assert_eq!(ends, expected, "{cases:?} in {family}");
        }
    }
}

/// Otherwise the table would say nothing that new connections do not.
#[test]
fn who_goes_on_ends_otherwise_than_who_begins() {
    let differs = |history: &&History| {
        let begun = |flow: Flow| {
            let desired = flow.given.compiled(Family::V4).desired;
            interpret(&desired, &flow.node_addresses(), &flow.packet())
        };
        let begun: Vec<Outcome> = history.flows(Family::V4).map(begun).collect();
        begun != history.ends(Family::V4)
    };
    let differ = HISTORIES.iter().filter(differs);
    let cases: Vec<u16> = differ.flat_map(|h| h.cases).copied().collect();
    assert_eq!(cases, [49, 210, 207, 213]);
}

fn model(service: Value, slices: impl IntoIterator<Item = Value>) -> DesiredState {
    let mut model = Model::new();
    model.apply_service(&serde_json::from_value(service).unwrap());
    for slice in slices {
        model.apply_slice(&serde_json::from_value(slice).unwrap());
    }
    compile(&model, &Node::named("n1")).desired
}

/// Of the Service `web`, with one endpoint.
fn slice(family: &str, address: &str, port: &Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": format!("web-{family}"),
                     "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": family, "ports": [port],
        "endpoints": [{"addresses": [address], "nodeName": "n1"}],
    })
}

fn from_a_pod(src: &str, dst: &str, protocol: Protocol) -> Packet {
    Packet {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        ifname: Some("pod0".to_owned()),
    }
}

fn answered(by: &str) -> Outcome {
    let by: SocketAddr = by.parse().unwrap();
    Outcome::Answered([(by, Seen::Client)].into())
}

/// Case 205: the pod stays, and listens at another port.
#[test]
fn a_flow_of_udp_follows_the_target_port() {
    let at = |port: u16| {
        let service = json!({
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"clusterIP": "172.30.0.41",
                     "ports": [{"name": "udp", "port": 80, "protocol": "UDP"}]},
        });
        let port = json!({"name": "udp", "port": port, "protocol": "UDP"});
        model(service, [slice("IPv4", "10.180.0.1", &port)])
    };
    let packet = from_a_pod("10.0.0.2", CLUSTER_IP, Protocol::Udp);
    let (own, old, new) = (BTreeSet::new(), "10.180.0.1:8080", "10.180.0.1:9090");
    let met: SocketAddr = old.parse().unwrap();
    let next = |port| interpret_next(&at(port), &own, &packet, Some((met, Seen::Client)));
    assert_eq!(next(8080), answered(old));
    assert_eq!(next(9090), answered(new));
}

/// Case 252.
#[test]
fn each_family_is_answered_by_its_own_endpoints() {
    let service = json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"clusterIP": "172.30.0.41", "clusterIPs": ["172.30.0.41", "fd00:30::41"],
                 "ipFamilies": ["IPv4", "IPv6"], "ports": [{"name": "http", "port": 80}]},
    });
    let port = json!({"name": "http", "port": 8080});
    let slices = [
        slice("IPv4", "10.180.0.1", &port),
        slice("IPv6", "fd00:180::1", &port),
    ];
    let end = |desired: &DesiredState, src: &str, dst: &str| {
        let packet = from_a_pod(src, dst, Protocol::Tcp);
        interpret(desired, &BTreeSet::new(), &packet)
    };
    let desired = model(service.clone(), slices.clone());
    let v4 = |desired: &DesiredState| end(desired, "10.0.0.2", CLUSTER_IP);
    let v6 = |desired: &DesiredState| end(desired, "fd00::2", "[fd00:30::41]:80");
    assert_eq!(v4(&desired), answered("10.180.0.1:8080"));
    assert_eq!(v6(&desired), answered("[fd00:180::1]:8080"));
    // Nor does one stand in for the other.
    let [only_v4, _] = slices;
    let desired = model(service, [only_v4]);
    assert_eq!(v4(&desired), answered("10.180.0.1:8080"));
    assert_eq!(v6(&desired), Outcome::Refused);
}

/// Case 254: at no moment is a new connection refused, and nobody new meets who is to go.
#[test]
fn a_rolling_update_refuses_nobody_under_both_policies() {
    let steps = [
        ("h1", "h1"),
        ("h1 h2", "h1 h2"),
        ("h1:leaving h2", "h2"),
        ("h2 h3", "h2 h3"),
        ("h2:leaving h3", "h3"),
        ("h2:gone h3", "h3"),
        // The last one has nobody to follow it yet.
        ("h3:leaving", "h3"),
    ];
    let (cluster, local) = (
        PLAIN,
        r#"{"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"}"#,
    );
    let clients = [
        (cluster, Client::Outside, NODE_PORT, Seen::Node),
        (cluster, Client::Pod, CLUSTER_IP, Seen::Client),
        (local, Client::Outside, NODE_PORT, Seen::Client),
        (local, Client::Pod, CLUSTER_IP, Seen::Client),
    ];
    for family in Family::ALL {
        for (endpoints, by) in steps {
            for (spec, from, to, seen) in clients {
                let flow = Flow {
                    cases: &[254],
                    family,
                    given: Given {
                        spec,
                        endpoints,
                        node: |_| {},
                    },
                    from,
                    to,
                    protocol: Protocol::Tcp,
                    expect: "",
                };
                let desired = flow.given.compiled(family).desired;
                let outcome = interpret(&desired, &flow.node_addresses(), &flow.packet());
                let names = by.split(' ');
                let by = names.map(|name| (endpoint(name, family), seen));
                let expected = Outcome::Answered(by.collect());
                assert_eq!(outcome, expected, "{endpoints}, {from:?} to {to}, {spec}");
            }
        }
    }
}
