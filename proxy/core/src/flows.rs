//! Packets and how they must end: one table for every data plane.
//!
//! The rows are plain data, numbered by the acceptance cases that they stand for.
//! [`interpret`](crate::interpret()) is held to them here; a backend's tests build
//! the same small world in namespaces and send real packets.
//!
//! ```text
//!  client pod 10.0.0.2 ─ pod0 ┐                  ┌ eth0 ─ outside 203.0.113.2, blocked 203.0.113.130
//!  pods h1… 10.180.0.1… ─ pod… ┴ node 192.168.0.2 ┴ far0 ─ pods t1… 10.180.1.1… of another node
//!                                     192.168.1.2
//! ```
//!
//! The Service `default/web` has clusterIP 172.30.0.41:80, NodePort 30001, load
//! balancer IPs 1.2.3.4 and 5.6.7.8, external IP 192.168.99.11, unless a row takes
//! some of it away. Its endpoints listen on port 8080.

#![allow(
    clippy::missing_panics_doc,
    reason = "test data: a row that makes no sense panics when it is looked at"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::desired::{Family, Protocol};
use crate::interpret::{Outcome, Packet, Seen};
use crate::node::{Detect, Node};
use crate::{Compiled, Model, compile};

mod table;
mod v6;

pub use table::flows;
pub use v6::in_family;

/// Where endpoints listen.
pub const ENDPOINT_PORT: u16 = 8080;
/// Addresses of the node besides loopback.
pub const NODE_ADDRESSES: [&str; 2] = ["192.168.0.2", "192.168.1.2"];
/// A load balancer IP of the Service.
pub const VIP: &str = "1.2.3.4";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// A pod of this node that is no endpoint.
    Pod,
    /// The endpoint `h1`.
    Endpoint,
    /// The node itself, with the address that routes give it.
    Node,
    /// The node itself, which has [`VIP`] as an address and uses it.
    NodeAsVip,
    /// The node itself, by its loopback address.
    Loopback,
    /// A pod of another node, whose address arrives unchanged.
    FarPod,
    /// Somebody outside of the cluster.
    Outside,
    /// Likewise, with an address that source ranges exclude.
    Blocked,
}

impl Client {
    /// The address in IPv4, and the node's device that it comes by.
    pub fn address(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Pod => ("10.0.0.2", Some("pod0")),
            Self::Endpoint => ("10.180.0.1", Some("pod1")),
            Self::Node => ("192.168.0.2", None),
            Self::NodeAsVip => (VIP, None),
            Self::Loopback => ("127.0.0.1", None),
            Self::FarPod => ("10.180.1.9", Some("far0")),
            Self::Outside => ("203.0.113.2", Some("eth0")),
            Self::Blocked => ("203.0.113.130", Some("eth1")),
        }
    }
}

/// What the kernel is programmed from.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// JSON that is laid over the Service's spec; `null` removes a field.
    /// `ingress` stands for `status.loadBalancer.ingress`, `annotations` for the Service's.
    pub spec: &'static str,
    /// Endpoints, each `NAME[:STATE][:zones=LIST][:nodes=LIST][:node=]`: `h1` to `h9`
    /// are on this node, `t1` to `t9` on another one, `n1` is this node itself. States:
    /// `ready` (unless said), `leaving` (serves while it terminates), `gone`
    /// (terminates), `starting` (serves, is not ready), `unready`, `published`
    /// (terminates, but its Service wants all that there are). `node=` names no node.
    pub endpoints: &'static str,
    /// How the node differs from [`node`].
    pub node: fn(&mut Node),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Numbers of the acceptance cases that this row stands for.
    pub cases: &'static [u16],
    /// The family of all addresses; rows are written in IPv4.
    pub family: Family,
    /// The world.
    pub given: Given,
    /// Who asks.
    pub from: Client,
    /// Whom for, in IPv4.
    pub to: &'static str,
    /// Transport.
    pub protocol: Protocol,
    /// `refused`, `unanswered`, `untouched`, or `NAME… as client|node`.
    pub expect: &'static str,
}

/// The node before [`Given::node`]: pods are told by the cluster's network.
pub fn node() -> Node {
    let pods = "10.0.0.0/8".parse().expect("this is a network");
    let address = NODE_ADDRESSES[0].parse().expect("this is an address");
    Node {
        zone: Some("a".to_owned()),
        addresses: vec![address],
        detect: Detect::Networks(vec![pods]),
        ..Node::named("n1")
    }
}

/// The address of `h1`, `t3` and so on.
pub fn endpoint(name: &str, family: Family) -> SocketAddr {
    let (side, number) = name.split_at(1);
    let addr = if side == "n" {
        NODE_ADDRESSES[0].parse().expect("this is an address")
    } else {
        let number = number.parse().expect("a row names endpoints by number");
        [10, 180, u8::from(side == "t"), number].into()
    };
    SocketAddr::new(in_family(addr, family), ENDPOINT_PORT)
}

impl Given {
    /// What this comes to.
    pub fn compiled(&self, family: Family) -> Compiled {
        let mut model = Model::new();
        let (mut service, mut slice) = (self.service(), self.slice());
        v6::object_in_family(&mut service, family);
        v6::object_in_family(&mut slice, family);
        slice["addressType"] = json!(family.to_string());
        let service: Service = serde_json::from_value(service).expect("a row describes a Service");
        let slice: EndpointSlice =
            serde_json::from_value(slice).expect("a row describes an EndpointSlice");
        model.apply_service(&service);
        model.apply_slice(&slice);
        let mut node = node();
        (self.node)(&mut node);
        v6::node_in_family(&mut node, family);
        compile(&model, &node)
    }

    fn service(&self) -> Value {
        let mut spec = json!({
            "type": "LoadBalancer", "clusterIP": "172.30.0.41",
            "externalIPs": ["192.168.99.11"], "healthCheckNodePort": 32000,
            "ports": [{"name": "http", "port": 80, "nodePort": 30001}],
        });
        let mut ingress = json!([{"ip": VIP}, {"ip": "5.6.7.8"}]);
        let mut annotations = json!({});
        let patch: Value = serde_json::from_str(self.spec).expect("a row's spec is JSON");
        for (key, value) in patch.as_object().into_iter().flatten() {
            match key.as_str() {
                "ingress" => ingress = value.clone(),
                "annotations" => annotations = value.clone(),
                _ => spec[key] = value.clone(),
            }
        }
        json!({
            "metadata": {"namespace": "default", "name": "web", "annotations": annotations},
            "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn slice(&self) -> Value {
        let endpoints: Vec<Value> = self.endpoints.split_whitespace().map(described).collect();
        let port = |protocol: &str| {
            json!({"name": if protocol == "TCP" { "http".to_owned() } else { protocol.to_lowercase() },
                   "port": ENDPOINT_PORT, "protocol": protocol})
        };
        json!({
            "metadata": {"namespace": "default", "name": "web-1",
                         "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [port("TCP"), port("UDP"), port("SCTP")],
            "endpoints": endpoints,
        })
    }
}

fn described(text: &str) -> Value {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let state = words.iter().find(|word| !word.contains('='));
    let (ready, serving, terminating) = match state {
        None | Some(&"ready") => (true, true, false),
        Some(&"leaving") => (false, true, true),
        Some(&"gone") => (false, false, true),
        Some(&"starting") => (false, true, false),
        Some(&"unready") => (false, false, false),
        Some(&"published") => (true, false, true),
        Some(other) => panic!("no such state: {other}"),
    };
    let hints = |key: &str| {
        let list = words.iter().find_map(|word| word.strip_prefix(key));
        let names = list.into_iter().flat_map(|list| list.split(','));
        names.map(|name| json!({"name": name})).collect::<Vec<_>>()
    };
    let node = match &name[..1] {
        _ if words.contains(&"node=") => Value::Null,
        "t" => json!("n2"),
        _ => json!("n1"),
    };
    json!({
        "addresses": [endpoint(name, Family::V4).ip().to_string()],
        "nodeName": node,
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "hints": {"forNodes": hints("nodes="), "forZones": hints("zones=")},
    })
}

impl Flow {
    /// This row in the other family.
    #[must_use]
    pub fn in_v6(self) -> Self {
        Self {
            family: Family::V6,
            ..self
        }
    }

    /// Whom for.
    pub fn dst(&self) -> SocketAddr {
        let mut dst: SocketAddr = self.to.parse().expect("a row names an address and a port");
        dst.set_ip(in_family(dst.ip(), self.family));
        dst
    }

    /// The client's address.
    pub fn src(&self) -> IpAddr {
        let (src, _) = self.from.address();
        in_family(src.parse().expect("clients have addresses"), self.family)
    }

    /// The connection.
    pub fn packet(&self) -> Packet {
        let (_, ifname) = self.from.address();
        Packet {
            src: self.src(),
            dst: self.dst(),
            protocol: self.protocol,
            ifname: ifname.map(ToOwned::to_owned),
        }
    }

    /// Addresses that the node has in this row.
    pub fn node_addresses(&self) -> BTreeSet<IpAddr> {
        let vip = (self.from == Client::NodeAsVip).then_some(VIP);
        let all = NODE_ADDRESSES.into_iter().chain(vip);
        let parsed = all.map(|addr| addr.parse().expect("this is an address"));
        parsed.map(|addr| in_family(addr, self.family)).collect()
    }

    /// How it must end.
    pub fn expected(&self) -> Outcome {
        if self.from == Client::Loopback && self.family == Family::V6 {
            // Case 66: there is no route_localnet in IPv6.
            return Outcome::Untouched;
        }
        match self.expect {
            "refused" => return Outcome::Refused,
            "unanswered" => return Outcome::Unanswered,
            "untouched" => return Outcome::Untouched,
            _ => {}
        }
        let (names, seen) = self
            .expect
            .rsplit_once(" as ")
            .expect("a row says whom the endpoint sees");
        let seen = if seen == "client" {
            Seen::Client
        } else {
            Seen::Node
        };
        let answers: BTreeMap<_, _> = names
            .split_whitespace()
            .map(|name| (endpoint(name, self.family), seen))
            .collect();
        Outcome::Answered(answers)
    }
}
