//! Objects that come, change and go, and what becomes of packets: as the interpreter says
//! first, then on the kernel.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use seaway_proxy_core::desired::Protocol;
use seaway_proxy_core::interpret::{Outcome, Packet, interpret};
use seaway_proxy_core::{Model, ObjectKey, compile};
use seaway_testbed::peer::{self, Server};
use serde_json::{Value, json};

use crate::node::{Node, VIP, answers, config, each_flavour, error_of, names};

/// Another address, and another port of [`VIP`]'s.
const SECOND: &str = "10.96.0.11:80";
const PORT_81: &str = "10.96.0.10:81";
const NODE_PORT: &str = "192.168.60.1:30001";
/// Whoever gets what nobody translates.
const BEYOND: &[&str] = &["beyond"];
const REFUSED: &[&str] = &[];

/// Endpoints by the names of their servers.
const ENDPOINTS: [(&str, &str); 3] = [
    ("10.244.0.2:8080", "pod0"),
    ("10.244.1.2:8080", "pod1"),
    ("10.244.1.2:8081", "pod1-other"),
];

/// A node that is programmed from objects.
struct World {
    /// Before the namespaces, so that they end first.
    _servers: Vec<Server>,
    node: Node,
    model: Model,
}

/// Runs a story with both flavours.
fn story(tell: fn(&mut World)) {
    each_flavour(|flavour| {
        let node = Node::new(config(flavour));
        let mut servers =
            vec![node.pods[1].serve(peer::Protocol::Tcp, "10.244.1.2:8081", "pod1-other")];
        for address in [VIP, SECOND, PORT_81] {
            let (ip, port) = address.split_once(':').unwrap();
            if port == "80" {
                node.outside.ip(&format!("addr add {ip}/32 dev lo"));
            }
            servers.push(node.outside.serve(peer::Protocol::Tcp, address, "beyond"));
        }
        let mut world = World {
            _servers: servers,
            node,
            model: Model::new(),
        };
        tell(&mut world);
    });
}

impl World {
    fn service(&mut self, object: Value) {
        let object: Service = serde_json::from_value(object).unwrap();
        self.model.apply_service(&object);
    }

    fn slice(&mut self, object: Value) {
        let object: EndpointSlice = serde_json::from_value(object).unwrap();
        self.model.apply_slice(&object);
    }

    /// Brings the kernel up to date; from the client pod each address has to be answered by
    /// just these, refused, or left alone.
    #[track_caller]
    fn expect(&mut self, expected: &[(&str, &[&str])]) {
        let this = seaway_proxy_core::Node::named("n1");
        let desired = compile(&self.model, &this).desired;
        self.node.sync(&desired);
        for (address, by) in expected {
            let packet = Packet {
                src: "10.244.9.2".parse().unwrap(),
                dst: address.parse().unwrap(),
                protocol: Protocol::Tcp,
                ifname: Some("pod9".to_owned()),
            };
            let own = BTreeSet::from(["192.168.60.1".parse().unwrap()]);
            let outcome = match interpret(&desired, &own, &packet) {
                Outcome::Refused => BTreeSet::new(),
                Outcome::Untouched => BEYOND.iter().copied().collect(),
                Outcome::Answered(by) => by.keys().copied().map(name_of).collect(),
                Outcome::Unanswered => panic!("{address} is dropped"),
            };
            let by: BTreeSet<&str> = by.iter().copied().collect();
            assert_eq!(outcome, by, "{address}, interpreted");
            self.packets(address, &by);
        }
    }

    #[track_caller]
    fn packets(&self, address: &str, by: &BTreeSet<&str>) {
        let client = &self.node.client;
        if by.is_empty() {
            let error = error_of(client.ask(peer::Protocol::Tcp, address));
            assert_eq!(error, ErrorKind::ConnectionRefused, "{address}");
        } else {
            let answers = answers(client, peer::Protocol::Tcp, address);
            assert_eq!(&names(&answers), by, "{address}");
        }
    }
}

fn name_of(endpoint: SocketAddr) -> &'static str {
    let mut all = ENDPOINTS.into_iter();
    let found = all.find(|(address, _)| address.parse() == Ok(endpoint));
    found.expect("an endpoint of this test").1
}

/// With ports, of which each has a name.
fn service(name: &str, ip: &str, ports: &Value) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "clusterIP": ip, "type": "NodePort", "ports": ports },
    })
}

fn web() -> Value {
    service(
        "web",
        "10.96.0.10",
        &json!([{ "name": "http", "port": 80 }]),
    )
}

/// Of the Service `web`.
fn slice(name: &str, ports: &Value, endpoints: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": name,
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    })
}

fn http(port: u16) -> Value {
    json!([{ "name": "http", "port": port }])
}

fn ready(addresses: &[&str]) -> Value {
    json!([{ "addresses": addresses, "nodeName": "n1" }])
}

/// Cases 27 and 28.
#[test]
fn slices_are_united_whatever_their_ports_numbers() {
    story(|w| {
        w.service(web());
        w.slice(slice("web-1", &http(8080), &ready(&["10.244.0.2"])));
        w.expect(&[(VIP, &["pod0"])]);
        w.slice(slice("web-2", &http(8080), &ready(&["10.244.1.2"])));
        w.expect(&[(VIP, &["pod0", "pod1"])]);
        w.slice(slice("web-2", &http(8081), &ready(&["10.244.1.2"])));
        w.expect(&[(VIP, &["pod0", "pod1-other"])]);
    });
}

/// Case 29.
#[test]
fn a_copy_that_terminates_takes_nothing_from_one_that_is_ready() {
    story(|w| {
        w.service(web());
        let leaving = json!([{
            "addresses": ["10.244.0.2"], "nodeName": "n1",
            "conditions": { "ready": false, "serving": true, "terminating": true },
        }]);
        for (first, second) in [("web-1", "web-2"), ("web-2", "web-1")] {
            w.slice(slice(first, &http(8080), &leaving));
            w.slice(slice(second, &http(8080), &ready(&["10.244.0.2"])));
            w.slice(slice("web-3", &http(8080), &ready(&["10.244.1.2"])));
            w.expect(&[(VIP, &["pod0", "pod1"])]);
        }
    });
}

/// Cases 26 and 30.
#[test]
fn what_is_wrong_in_a_slice_has_no_part() {
    story(|w| {
        let ports = json!([{ "name": "http", "port": 80 }, { "name": "more", "port": 81 }]);
        w.service(service("web", "10.96.0.10", &ports));
        let endpoints = ready(&["10.244.0.2", "10.244.1.2"]);
        for wrong in [
            json!({ "port": 8080 }),
            json!({ "name": "more" }),
            json!({ "name": "more", "port": 0 }),
        ] {
            let ports = json!([{ "name": "http", "port": 8080 }, wrong]);
            w.slice(slice("web-1", &ports, &endpoints));
            w.expect(&[(VIP, &["pod0"]), (PORT_81, REFUSED)]);
        }
    });
}

/// Case 32.
#[test]
fn services_with_the_same_endpoints_are_independent() {
    story(|w| {
        w.service(web());
        let second = json!([{ "name": "http", "port": 80 }]);
        w.service(service("second", "10.96.0.11", &second));
        let all = ready(&["10.244.0.2"]);
        w.slice(slice("web-1", &http(8080), &all));
        let mut of_second = slice("second-1", &http(8080), &all);
        of_second["metadata"]["labels"]["kubernetes.io/service-name"] = json!("second");
        w.slice(of_second);
        w.expect(&[(VIP, &["pod0"]), (SECOND, &["pod0"])]);
        w.model.delete_service(&ObjectKey::new("default", "web"));
        w.expect(&[(VIP, BEYOND), (SECOND, &["pod0"])]);
    });
}

/// Cases 36, 37 and 77.
#[test]
fn services_come_again_and_change_their_ports() {
    story(|w| {
        let key = ObjectKey::new("default", "web");
        w.slice(slice("web-1", &http(8080), &ready(&["10.244.0.2"])));
        for _ in 0..2 {
            w.service(web());
            w.expect(&[(VIP, &["pod0"]), (PORT_81, BEYOND)]);
            w.model.delete_service(&key);
            w.expect(&[(VIP, BEYOND)]);
        }
        let port = |name: &str, port: u16, node_port: u16| {
            let ports = json!([{ "name": name, "port": port, "nodePort": node_port }]);
            service("web", "10.96.0.10", &ports)
        };
        w.service(port("http", 81, 30001));
        w.expect(&[(VIP, BEYOND), (PORT_81, &["pod0"]), (NODE_PORT, &["pod0"])]);
        // A name that its slice does not have.
        w.service(port("renamed", 81, 30002));
        w.expect(&[(PORT_81, REFUSED), ("192.168.60.1:30002", REFUSED)]);
        w.service(port("http", 81, 30002));
        w.expect(&[(PORT_81, &["pod0"]), ("192.168.60.1:30002", &["pod0"])]);
        let old = w.node.client.ask(peer::Protocol::Tcp, NODE_PORT);
        assert_eq!(error_of(old), ErrorKind::ConnectionRefused, "nobody's port");
    });
}

/// Cases 20 and 257.
#[test]
fn a_services_type_changes() {
    story(|w| {
        let of_type = |kind: &str, node_port: Option<u16>| {
            let ports = json!([{ "name": "http", "port": 80, "nodePort": node_port }]);
            let mut service = service("web", "10.96.0.10", &ports);
            service["spec"]["type"] = json!(kind);
            service
        };
        w.slice(slice("web-1", &http(8080), &ready(&["10.244.0.2"])));
        w.service(of_type("ClusterIP", None));
        w.expect(&[(VIP, &["pod0"])]);
        w.service(of_type("ExternalName", None));
        w.expect(&[(VIP, BEYOND)]);
        w.service(of_type("NodePort", Some(30001)));
        w.expect(&[(VIP, &["pod0"]), (NODE_PORT, &["pod0"])]);
        w.service(of_type("ClusterIP", None));
        w.expect(&[(VIP, &["pod0"])]);
        let old = w.node.client.ask(peer::Protocol::Tcp, NODE_PORT);
        assert_eq!(error_of(old), ErrorKind::ConnectionRefused, "nobody's port");
    });
}

/// Cases 21, 22 and 23: an object with such a label is as good as gone.
#[test]
fn labels_take_services_and_slices_away_and_give_them_back() {
    story(|w| {
        let (web, of_web) = (web(), slice("web-1", &http(8080), &ready(&["10.244.0.2"])));
        w.service(web.clone());
        w.slice(of_web.clone());
        let labelled = |object: &Value, label: &str| {
            let mut object = object.clone();
            object["metadata"]["labels"][label] = json!("");
            object
        };
        for _ in 0..2 {
            w.expect(&[(VIP, &["pod0"])]);
            w.service(labelled(&web, "service.kubernetes.io/service-proxy-name"));
            w.expect(&[(VIP, BEYOND)]);
            w.service(web.clone());
            w.slice(labelled(&of_web, "service.kubernetes.io/headless"));
            w.expect(&[(VIP, REFUSED)]);
            w.slice(of_web.clone());
        }
    });
}

/// Case 261, and bug 24 of kube-proxy's own list.
#[test]
fn a_slice_that_is_given_to_another_service_leaves_the_former() {
    story(|w| {
        w.service(web());
        let second = json!([{ "name": "http", "port": 80 }]);
        w.service(service("second", "10.96.0.11", &second));
        let mut slice = slice("web-1", &http(8080), &ready(&["10.244.0.2"]));
        w.slice(slice.clone());
        w.expect(&[(VIP, &["pod0"]), (SECOND, REFUSED)]);
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!("second");
        w.slice(slice);
        w.expect(&[(VIP, REFUSED), (SECOND, &["pod0"])]);
    });
}
