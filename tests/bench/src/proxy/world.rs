//! The objects of a cluster: so many Services, with so many endpoints each.

use std::net::Ipv4Addr;

use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use serde_json::{Value, json};

/// The node that is measured.
pub(super) const NODE: &str = "node-0";
pub(super) const NODE_IP: &str = "172.30.0.11";
/// All endpoints are in here.
pub(super) const ENDPOINTS: &str = "10.128.0.0/10";
/// What Services answer at, and their endpoints.
pub(super) const PORT: u16 = 80;
pub(super) const TARGET: u16 = 8080;
/// Of so many endpoints one is on the node that is measured: about a hundred pods.
const NODES_OF_ENDPOINTS: usize = 1000;
/// How many NodePorts there can be.
const NODE_PORTS: usize = 2768;
/// Of so many Services one has a NodePort, and another loses its endpoints.
const FIFTH: usize = 5;
const TENTH: usize = 10;

/// A cluster by its size. Everything about a Service follows from its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) services: usize,
    pub(super) endpoints: usize,
}

/// Which Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With a cluster IP only.
    Plain,
    NodePort,
    /// Loses its endpoints, see [`World::abandon`].
    Abandoned,
}

impl World {
    pub(super) fn kind(place: usize) -> Kind {
        if place % TENTH == 7 {
            Kind::Abandoned
        } else if place % FIFTH == 1 && place / FIFTH < NODE_PORTS {
            Kind::NodePort
        } else {
            Kind::Plain
        }
    }

    /// The places of a kind.
    pub(super) fn of(self, kind: Kind) -> Vec<usize> {
        let all = 0..self.services;
        all.filter(|place| Self::kind(*place) == kind).collect()
    }

    /// Rules that lead to an endpoint when all is there; the Service that changes has one.
    pub(super) fn targets(self) -> usize {
        self.services * self.endpoints + 1
    }

    /// Fills `api`.
    pub(super) fn fill(self, api: &FakeApi) {
        api.apply(NODES, node());
        for place in 0..self.services {
            api.apply(SERVICES, service(place));
            api.apply(SLICES, self.slice(place));
        }
        api.apply(SERVICES, named("canary", canary_ip(), None));
        Self::move_canary(api, 0);
    }

    /// Every tenth Service loses its endpoints.
    pub(super) fn abandon(self, api: &FakeApi) {
        for place in self.of(Kind::Abandoned) {
            api.delete(SLICES, self.slice(place));
        }
    }

    /// The one Service that changes gets its one endpoint replaced; tells the new one.
    pub(super) fn move_canary(api: &FakeApi, turn: u8) -> Ipv4Addr {
        let address = Ipv4Addr::new(10, 190, 0, turn);
        let endpoints = vec![endpoint(usize::from(turn), address)];
        api.apply(SLICES, slice_of("canary", "x", &endpoints));
        address
    }

    fn slice(self, place: usize) -> Value {
        let first = place * self.endpoints;
        let all = (first..first + self.endpoints).map(|nth| endpoint(nth, endpoint_ip(nth)));
        slice_of(
            &name(place),
            namespace(place).as_str(),
            &all.collect::<Vec<_>>(),
        )
    }
}

fn name(place: usize) -> String {
    format!("service-{place:05}")
}

/// As many as teams have.
fn namespace(place: usize) -> String {
    format!("team-{}", place % 100)
}

/// Spread over a /16, as the API server spreads them.
pub(super) fn cluster_ip(place: usize) -> Ipv4Addr {
    // A prime and another, so that none comes twice below the first.
    let spread = 1 + place * 40_503 % 65_521;
    let low = u16::try_from(spread)
        .expect("less than the prime")
        .to_be_bytes();
    Ipv4Addr::new(10, 96, low[0], low[1])
}

pub(super) fn canary_ip() -> Ipv4Addr {
    Ipv4Addr::new(10, 97, 0, 1)
}

pub(super) fn node_port(place: usize) -> u16 {
    30_000 + u16::try_from(place / FIFTH).expect("checked by World::kind")
}

fn endpoint_ip(nth: usize) -> Ipv4Addr {
    let nth = u32::try_from(nth + 1).expect("there are not so many");
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 0)) + nth)
}

fn service(place: usize) -> Value {
    let port = (World::kind(place) == Kind::NodePort).then(|| node_port(place));
    let mut service = named(&name(place), cluster_ip(place), port);
    service["metadata"]["namespace"] = json!(namespace(place));
    service
}

fn named(name: &str, ip: Ipv4Addr, node_port: Option<u16>) -> Value {
    let mut port = json!({
        "name": "http", "port": PORT, "targetPort": TARGET, "protocol": "TCP",
    });
    let mut kind = "ClusterIP";
    if let Some(number) = node_port {
        kind = "NodePort";
        port["nodePort"] = json!(number);
    }
    json!({
        "metadata": {
            "namespace": "x", "name": name, "uid": format!("uid-of-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": name, "app.kubernetes.io/part-of": "bench"},
        },
        "spec": {
            "type": kind, "clusterIP": ip, "clusterIPs": [ip], "ports": [port],
            "selector": {"app": name},
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    })
}

fn slice_of(service: &str, namespace: &str, endpoints: &[Value]) -> Value {
    json!({
        "metadata": {
            "namespace": namespace, "name": format!("{service}-abcde"),
            "uid": format!("uid-of-slice-of-{service}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": service,
                "uid": format!("uid-of-{service}"),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": TARGET, "protocol": "TCP"}],
    })
}

fn endpoint(nth: usize, address: Ipv4Addr) -> Value {
    json!({
        "addresses": [address],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", nth % NODES_OF_ENDPOINTS),
        "zone": format!("zone-{}", nth % 3),
        "targetRef": {
            "kind": "Pod", "namespace": "x", "name": format!("pod-{nth}"),
            "uid": format!("uid-of-pod-{nth}"),
        },
    })
}

fn node() -> Value {
    json!({
        "metadata": {
            "name": NODE, "uid": "uid-of-node-0",
            "labels": {"topology.kubernetes.io/zone": "zone-0"},
        },
        "spec": {"podCIDR": "10.200.0.0/24", "podCIDRs": ["10.200.0.0/24"]},
        "status": {"addresses": [
            {"type": "InternalIP", "address": NODE_IP},
            {"type": "Hostname", "address": NODE},
        ]},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_world_is_what_the_bounds_are_about() {
        let world = World {
            services: 10_000,
            endpoints: 10,
        };
        assert_eq!(world.of(Kind::NodePort).len(), 2000);
        assert_eq!(world.of(Kind::Abandoned).len(), 1000);
        let ips: BTreeSet<Ipv4Addr> = (0..10_000).map(cluster_ip).collect();
        assert_eq!(ips.len(), 10_000);
        let ports: BTreeSet<u16> = world
            .of(Kind::NodePort)
            .into_iter()
            .map(node_port)
            .collect();
        assert_eq!(ports.len(), 2000);
        let small = World {
            services: 10,
            endpoints: 10,
        };
        assert_eq!(small.of(Kind::NodePort), [1, 6]);
        assert_eq!(small.of(Kind::Abandoned), [7]);
    }
}
