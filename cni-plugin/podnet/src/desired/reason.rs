//! Why something is not desired.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, SpecialRange};

/// A peer that nothing leads to, or less than it asks for.
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

/// Why nothing leads to a peer; Display names the field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    /// Nothing allocated yet, or a cluster that gives this Node none.
    #[error("spec.podCIDRs: no range of a family that this node has pods of")]
    NoPodCidr,
    /// The node has not reported one yet, or none that the path can lead by.
    #[error("status.addresses: no InternalIP of {}", family_text(*.family))]
    NoInternalIp {
        /// The family that was looked for.
        family: Family,
    },
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
        value: IpAddr,
    },
    /// The address is in the range of this node's pods, so nothing leads there.
    #[error("status.addresses: InternalIP {value} is in this node's podCIDR {cidr}")]
    InOwnPodCidr {
        /// The peer's address.
        value: IpAddr,
        /// The range of this node's pods.
        cidr: IpNetwork,
    },
    /// The address is behind a router, which knows no way to pods.
    #[error("status.addresses: InternalIP {value} is a neighbour on no link")]
    NotOnLink {
        /// The peer's address.
        value: IpAddr,
    },
    /// The overlay has one family on each node, and the peer's is not this node's.
    #[error(
        "status.addresses: its overlay runs over {}, this node's over {}",
        family_text(*.peer),
        family_text(*.own)
    )]
    OtherCarrier {
        /// The family of the peer's overlay.
        peer: Family,
        /// The family of this node's.
        own: Family,
    },
    /// Not a range in CIDR notation, or one that pods cannot have.
    #[error("spec.podCIDRs: {value:?} {fault}")]
    BadPodCidr {
        /// As the API has it.
        value: String,
        /// What is wrong with it.
        fault: BadRange,
    },
    /// The range contains an address of a node, so a route would cut that node off.
    #[error("spec.podCIDRs: {cidr} contains the node address {address}")]
    CoversNode {
        /// The offending range.
        cidr: IpNetwork,
        /// The node address inside it.
        address: IpAddr,
    },
    /// Two nodes claim the same addresses; the older one keeps them, and this node its own.
    #[error("spec.podCIDRs: {cidr} overlaps {other} of node {holder}")]
    Overlaps {
        /// The offending range.
        cidr: IpNetwork,
        /// What it overlaps.
        other: IpNetwork,
        /// Whose that is.
        holder: String,
    },
}

/// What is wrong with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum BadRange {
    /// No CIDR notation, or no room for a node and a pod in it.
    #[error("is not an IP range for pods")]
    NotARange,
    /// It has addresses that no pod can have.
    #[error("touches {0}")]
    Special(SpecialRange),
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
    /// `spec.podCIDRs` has no range yet: the controller-manager sets it.
    #[error("node {name} has no range in spec.podCIDRs")]
    NoPodCidr {
        /// This node's name.
        name: String,
    },
    /// This node's range cannot be used.
    #[error("node {name} has {value:?} in spec.podCIDRs, which {fault}")]
    BadPodCidr {
        /// This node's name.
        name: String,
        /// As the API has it.
        value: String,
        /// What is wrong with it.
        fault: BadRange,
    },
    /// This node's pods would have the node's own address, or each other's.
    #[error("node {name} has {cidr} in spec.podCIDRs, which overlaps {other}")]
    OverlappingPodCidr {
        /// This node's name.
        name: String,
        /// The offending range.
        cidr: IpNetwork,
        /// The node's address, or its other range.
        other: IpNetwork,
    },
    /// The overlay needs an address, and the kubelet has not reported one yet.
    #[error("node {name} has no InternalIP in status.addresses")]
    NoInternalIp {
        /// This node's name.
        name: String,
    },
}

fn family_text(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
