//! This node as compile wants it: the object, and what the operator has chosen.

use seaway_proxy_core::Node;
use seaway_proxy_core::node::Detect;

use crate::config::{DetectLocal, ServicesConfig};
use crate::nodes::OwnNode;

/// Whether `own` says all that `config` goes by.
pub(super) fn known(own: Option<&OwnNode>, config: &ServicesConfig) -> bool {
    own.is_some_and(|own| config.detect != DetectLocal::NodeCidrs || !own.pod_cidrs.is_empty())
}

/// What is known of the node; of one that has not been seen, its name.
pub(crate) fn of(name: &str, own: Option<OwnNode>, config: &ServicesConfig) -> Node {
    let mut own = own.unwrap_or_default();
    if let Some(address) = config.node_address {
        own.addresses.retain(|a| a.is_ipv4() != address.is_ipv4());
        own.addresses.insert(0, address);
    }
    let detect = match &config.detect {
        DetectLocal::ClusterCidrs(cidrs) => Detect::Networks(cidrs.clone()),
        DetectLocal::NodeCidrs => Detect::Networks(own.pod_cidrs),
        DetectLocal::Interface(name) => Detect::Interface(name.clone()),
        DetectLocal::InterfacePrefix(prefix) => Detect::InterfacePrefix(prefix.clone()),
    };
    Node {
        zone: own.zone,
        addresses: own.addresses,
        detect,
        masquerade_all: config.masquerade_all,
        node_ports: config.node_ports.clone(),
        localhost_node_ports: config.localhost_node_ports,
        external_ips: config.external_ips,
        ..Node::named(name)
    }
}
