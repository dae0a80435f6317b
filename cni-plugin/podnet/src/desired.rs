//! From Nodes to routes, without looking at the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv4Network};

#[cfg(test)]
mod tests;

/// What the pod network reads of a Node, as the API spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `status.addresses` of type `InternalIP`, in the API's order.
    pub internal_ips: Vec<String>,
    /// `spec.podCIDRs`, in the API's order.
    pub pod_cidrs: Vec<String>,
}

/// What this node needs for its pods to reach others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// This node's own podCIDR.
    pub pod_cidr: Ipv4Network,
    /// This node's InternalIP, where it has one; finds the uplink and its MTU.
    pub node_ip: Option<Ipv4Addr>,
    /// Peers' podCIDRs and the InternalIP that each is reached by.
    pub routes: BTreeMap<Ipv4Network, Ipv4Addr>,
    /// Destinations that see the pod's own address; all others see the node's.
    pub cluster_cidrs: Vec<Ipv4Network>,
    /// Peers, or single podCIDRs of peers, that got no route.
    pub skipped: Vec<Skip>,
}

impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pod-cidr {}", self.pod_cidr)?;
        for (cidr, via) in &self.routes {
            writeln!(f, "route {cidr} via {via}")?;
        }
        for cidr in &self.cluster_cidrs {
            writeln!(f, "masquerade {} except to {cidr}", self.pod_cidr)?;
        }
        for skip in &self.skipped {
            writeln!(f, "skip {skip}")?;
        }
        Ok(())
    }
}

/// A peer that got no route, or less than it asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The peer's name.
    pub node: String,
    /// What is wrong with it.
    pub reason: SkipReason,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.node, self.reason)
    }
}

/// Why a peer got no route; Display names the field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    /// Nothing allocated yet, or a cluster that gives this Node none.
    #[error("spec.podCIDRs: no IPv4 range")]
    NoPodCidr,
    /// The node has not reported one yet.
    #[error("status.addresses: no InternalIP of IPv4")]
    NoInternalIp,
    /// Not an address that a packet can be sent to.
    #[error("status.addresses: InternalIP {value:?} is not a unicast address")]
    BadInternalIp {
        /// As the API has it.
        value: String,
    },
    /// The address is this node's; a route there would loop.
    #[error("status.addresses: InternalIP {value} is this node's own")]
    OwnInternalIp {
        /// The shared address.
        value: Ipv4Addr,
    },
    /// Not a range in CIDR notation.
    #[error("spec.podCIDRs: {value:?} is not an IP range")]
    BadPodCidr {
        /// As the API has it.
        value: String,
    },
    /// The range contains an address of a node, so a route would cut that node off.
    #[error("spec.podCIDRs: {cidr} contains the node address {address}")]
    CoversNode {
        /// The offending range.
        cidr: Ipv4Network,
        /// The node address inside it.
        address: Ipv4Addr,
    },
    /// Two nodes claim the same addresses; the first by name keeps them.
    #[error("spec.podCIDRs: {cidr} overlaps {other} of node {holder}")]
    Overlaps {
        /// The offending range.
        cidr: Ipv4Network,
        /// What it overlaps.
        other: Ipv4Network,
        /// Whose that is.
        holder: String,
    },
}

/// Why nothing can be desired yet. The kernel is left as it is meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// This node's Node object is not there.
    #[error("node {name} is not registered")]
    NoNode {
        /// This node's name.
        name: String,
    },
    /// `spec.podCIDRs` has no IPv4 range yet: the controller-manager sets it.
    #[error("node {name} has no IPv4 range in spec.podCIDRs")]
    NoPodCidr {
        /// This node's name.
        name: String,
    },
    /// This node's range cannot be used.
    #[error("node {name} has {value:?} in spec.podCIDRs, which is not a usable IP range")]
    BadPodCidr {
        /// This node's name.
        name: String,
        /// As the API has it.
        value: String,
    },
}

/// Computes what the node `own` needs from all Nodes.
///
/// A Node that is wrong costs its own routes only. The result does not depend on
/// the order in which Nodes became known.
///
/// # Errors
/// [`Waiting`], while this node's own Node does not say which addresses its pods get.
pub fn desired(
    own: &str,
    nodes: &BTreeMap<String, Node>,
    cluster_cidrs: &[Ipv4Network],
) -> Result<Desired, Waiting> {
    let node = nodes.get(own).ok_or_else(|| Waiting::NoNode {
        name: own.to_owned(),
    })?;
    let pod_cidr = own_pod_cidr(node)?;
    let node_ip = internal_ip(node).ok();
    let mut plan = Plan {
        addresses: nodes.values().filter_map(|n| internal_ip(n).ok()).collect(),
        node_ip,
        taken: BTreeMap::from([(pod_cidr, own.to_owned())]),
        routes: BTreeMap::new(),
        skipped: Vec::new(),
    };
    for peer in nodes.values().filter(|n| n.name != own) {
        plan.add_peer(peer);
    }
    let mut cluster_cidrs = cluster_cidrs.to_vec();
    cluster_cidrs.sort();
    cluster_cidrs.dedup();
    Ok(Desired {
        pod_cidr,
        node_ip,
        routes: plan.routes,
        cluster_cidrs,
        skipped: plan.skipped,
    })
}

struct Plan {
    addresses: Vec<Ipv4Addr>,
    node_ip: Option<Ipv4Addr>,
    taken: BTreeMap<Ipv4Network, String>,
    routes: BTreeMap<Ipv4Network, Ipv4Addr>,
    skipped: Vec<Skip>,
}

impl Plan {
    fn add_peer(&mut self, peer: &Node) {
        let mut reasons = Vec::new();
        match self.gateway(peer) {
            Ok(via) => {
                let cidrs = pod_cidrs(peer, &mut reasons);
                if cidrs.is_empty() && reasons.is_empty() {
                    reasons.push(SkipReason::NoPodCidr);
                }
                for cidr in cidrs {
                    match self.claim(cidr, peer) {
                        Ok(()) => {
                            self.routes.insert(cidr, via);
                        }
                        Err(reason) => reasons.push(reason),
                    }
                }
            }
            Err(reason) => reasons.push(reason),
        }
        let skips = reasons.into_iter().map(|reason| Skip {
            node: peer.name.clone(),
            reason,
        });
        self.skipped.extend(skips);
    }

    fn gateway(&self, peer: &Node) -> Result<Ipv4Addr, SkipReason> {
        let via = internal_ip(peer)?;
        if self.node_ip == Some(via) {
            return Err(SkipReason::OwnInternalIp { value: via });
        }
        Ok(via)
    }

    fn claim(&mut self, cidr: Ipv4Network, peer: &Node) -> Result<(), SkipReason> {
        if let Some(address) = self.addresses.iter().copied().find(|a| cidr.contains(*a)) {
            return Err(SkipReason::CoversNode { cidr, address });
        }
        if let Some((other, holder)) = self.taken.iter().find(|(taken, _)| taken.overlaps(cidr)) {
            return Err(SkipReason::Overlaps {
                cidr,
                other: *other,
                holder: holder.clone(),
            });
        }
        self.taken.insert(cidr, peer.name.clone());
        Ok(())
    }
}

/// The first usable IPv4 InternalIP, or what is wrong with the first bad one.
fn internal_ip(node: &Node) -> Result<Ipv4Addr, SkipReason> {
    let mut bad = None;
    for value in &node.internal_ips {
        match value.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) if is_unicast(ip) => return Ok(ip),
            Ok(IpAddr::V6(_)) => {}
            _ => {
                let value = value.clone();
                bad = bad.or(Some(SkipReason::BadInternalIp { value }));
            }
        }
    }
    Err(bad.unwrap_or(SkipReason::NoInternalIp))
}

fn is_unicast(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast())
}

/// The IPv4 ranges;
/// those of IPv6 are left out without a word, they are not this version's business.
fn pod_cidrs(node: &Node, reasons: &mut Vec<SkipReason>) -> Vec<Ipv4Network> {
    let mut cidrs = Vec::new();
    for value in &node.pod_cidrs {
        match parse_cidr(value) {
            Some(IpNetwork::V4(cidr)) => cidrs.push(cidr),
            Some(IpNetwork::V6(_)) => {}
            None => reasons.push(SkipReason::BadPodCidr {
                value: value.clone(),
            }),
        }
    }
    cidrs
}

fn own_pod_cidr(node: &Node) -> Result<Ipv4Network, Waiting> {
    for value in &node.pod_cidrs {
        match parse_cidr(value) {
            Some(IpNetwork::V4(cidr)) => return Ok(cidr),
            Some(IpNetwork::V6(_)) => {}
            None => {
                return Err(Waiting::BadPodCidr {
                    name: node.name.clone(),
                    value: value.clone(),
                });
            }
        }
    }
    Err(Waiting::NoPodCidr {
        name: node.name.clone(),
    })
}

/// The range with its host bits cleared, as kube-proxy reads them.
fn parse_cidr(value: &str) -> Option<IpNetwork> {
    // Without a slash the parser takes a single address, which the API never means.
    if !value.contains('/') {
        return None;
    }
    let cidr: IpNetwork = value.parse().ok()?;
    if cidr.prefix() == 0 {
        return None;
    }
    IpNetwork::new(cidr.network(), cidr.prefix()).ok()
}
