//! What the daemon reads of Nodes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::health::Health;
use crate::service_proxy::Feed;

#[cfg(test)]
mod tests;

/// The cluster autoscaler is about to delete a Node with this taint, whatever its
/// value or effect; load balancers shall leave it (KEP-3836).
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// All Nodes, as the pod network reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Whether all of them have been delivered once.
    pub(crate) listed: bool,
    /// By name.
    pub(crate) by_name: BTreeMap<String, seaway_podnet::Node>,
}

/// The node's zone, on which topology hints depend.
const ZONE: &str = "topology.kubernetes.io/zone";

/// This node, as the service proxy reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnNode {
    /// The label, if it says something.
    pub(crate) zone: Option<String>,
    /// The first of each family, internal ones before external ones.
    pub(crate) addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`
    pub(crate) pod_cidrs: Vec<IpNetwork>,
}

/// Takes the events of the Node watch.
#[derive(Debug)]
pub(crate) struct Intake {
    own_name: String,
    health: Arc<Health>,
    feed: Arc<Feed>,
    listing: BTreeSet<String>,
    nodes: watch::Sender<Nodes>,
}

impl Intake {
    pub(crate) fn new(own_name: String, health: Arc<Health>, feed: Arc<Feed>) -> Self {
        let (listing, nodes) = (BTreeSet::new(), watch::Sender::default());
        Self {
            own_name,
            health,
            feed,
            listing,
            nodes,
        }
    }

    pub(crate) fn nodes(&self) -> watch::Receiver<Nodes> {
        self.nodes.subscribe()
    }

    /// A relist is applied Node by Node; those that it did not name go at its end.
    pub(crate) fn take(&mut self, event: Event<Node>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(node) => {
                self.listing.insert(name(&node));
                self.apply(&node);
            }
            Event::InitDone => {
                let keep = std::mem::take(&mut self.listing);
                self.nodes.send_if_modified(|nodes| {
                    let before = nodes.by_name.len();
                    nodes.by_name.retain(|name, _| keep.contains(name));
                    let first = !std::mem::replace(&mut nodes.listed, true);
                    first || nodes.by_name.len() != before
                });
            }
            Event::Apply(node) => self.apply(&node),
            // Health and Services keep what they knew of a deleted Node, like kube-proxy's.
            Event::Delete(node) => {
                let name = name(&node);
                self.nodes
                    .send_if_modified(|nodes| nodes.by_name.remove(&name).is_some());
            }
        }
    }

    fn apply(&self, node: &Node) {
        if name(node) == self.own_name {
            self.health.set_node_eligible(eligible(node));
            self.feed.node_seen(own(node));
        }
        let node = read(node);
        self.nodes.send_if_modified(|nodes| {
            if nodes.by_name.get(&node.name) == Some(&node) {
                return false;
            }
            nodes.by_name.insert(node.name.clone(), node);
            true
        });
    }
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// Whether load balancers outside the cluster should send traffic to this Node.
fn eligible(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none() && taints.into_iter().all(|t| t.key != TO_BE_DELETED)
}

pub(crate) fn own(node: &Node) -> OwnNode {
    let labels = node.metadata.labels.as_ref();
    let zone = labels.and_then(|labels| labels.get(ZONE));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for kind in ["InternalIP", "ExternalIP"] {
        for addr in addresses_of(node, kind).filter_map(|addr| addr.parse::<IpAddr>().ok()) {
            if addresses.iter().all(|a| a.is_ipv4() != addr.is_ipv4()) {
                addresses.push(addr);
            }
        }
    }
    // The pod network tells what is wrong with one.
    let pod_cidrs = pod_cidrs(node)
        .iter()
        .filter_map(|cidr| cidr.parse::<IpNetwork>().ok())
        .filter_map(|cidr| IpNetwork::new(cidr.network(), cidr.prefix()).ok())
        .collect();
    OwnNode {
        zone: zone.filter(|zone| !zone.is_empty()).cloned(),
        addresses,
        pod_cidrs,
    }
}

fn addresses_of<'a>(node: &'a Node, kind: &'a str) -> impl Iterator<Item = &'a String> {
    let status = node.status.iter();
    let addresses = status.flat_map(|s| s.addresses.iter().flatten());
    addresses
        .filter(move |a| a.type_ == kind)
        .map(|a| &a.address)
}

fn pod_cidrs(node: &Node) -> Vec<String> {
    let spec = node.spec.as_ref();
    let mut pod_cidrs = spec.and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
    // Old objects have the singular form alone.
    if pod_cidrs.is_empty() {
        pod_cidrs.extend(
            spec.and_then(|s| s.pod_cidr.clone())
                .filter(|c| !c.is_empty()),
        );
    }
    pod_cidrs
}

/// Seconds since 1970.
fn created(node: &Node) -> Option<i64> {
    let created = node.metadata.creation_timestamp.as_ref();
    created.map(|time| time.0.as_second())
}

/// The fields that matter, unjudged.
fn read(node: &Node) -> seaway_podnet::Node {
    seaway_podnet::Node {
        name: name(node),
        created: created(node),
        internal_ips: addresses_of(node, "InternalIP").cloned().collect(),
        pod_cidrs: pod_cidrs(node),
    }
}
