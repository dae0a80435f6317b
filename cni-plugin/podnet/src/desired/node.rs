//! What one Node says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, MacAddr, SpecialRange};
use sha2::{Digest, Sha256};

use super::reason::{BadRange, SkipReason};
use crate::Named;

/// What the pod network reads of a Node, as the API spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.creationTimestamp`, in seconds since 1970; unknown counts as newest.
    pub created: Option<i64>,
    /// `status.addresses` of type `InternalIP`, in the API's order.
    pub internal_ips: Vec<String>,
    /// `spec.podCIDRs`, in the API's order.
    pub pod_cidrs: Vec<String>,
}

/// The first usable InternalIP of each family, IPv4 first, and those that are none.
///
/// The order among families is not the API's: each node must choose the same carrier for
/// every other one, and kubelets list a node's families in either order.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    pub(super) usable: Vec<IpAddr>,
    bad: Option<String>,
}

impl Addresses {
    /// Those that the operator's link leads to count before the others.
    pub(super) fn of(node: &Node, named: Option<&Named>) -> Self {
        let mut addresses = Self::default();
        let mut ips = Vec::new();
        for value in &node.internal_ips {
            match value.parse::<IpAddr>() {
                Ok(ip) if is_unicast(ip) => ips.push(ip),
                _ => addresses.bad = addresses.bad.or_else(|| Some(value.clone())),
            }
        }
        if let Some(named) = named {
            ips.sort_by_key(|ip| named.rank(*ip));
        }
        for ip in ips {
            addresses.push(ip);
        }
        addresses
    }

    pub(super) fn chosen(ips: &[IpAddr]) -> Self {
        let mut addresses = Self::default();
        for ip in ips {
            addresses.push(*ip);
        }
        addresses
    }

    fn push(&mut self, ip: IpAddr) {
        if self
            .usable
            .iter()
            .all(|other| other.is_ipv4() != ip.is_ipv4())
        {
            self.usable.push(ip);
            self.usable.sort_by_key(|ip| Family::of(*ip) == Family::V6);
        }
    }

    /// The family of the packets that carry the overlay: IPv4 if the node has it.
    pub(super) fn carrier(&self) -> Option<Family> {
        self.usable.first().copied().map(Family::of)
    }

    /// That of one family, or what is wrong.
    pub(super) fn get(&self, family: Family) -> Result<IpAddr, SkipReason> {
        let found = self.usable.iter().find(|ip| Family::of(**ip) == family);
        found.copied().ok_or_else(|| match &self.bad {
            Some(value) => SkipReason::BadInternalIp {
                value: value.clone(),
            },
            None => SkipReason::NoInternalIp { family },
        })
    }
}

fn is_unicast(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) if ip.is_broadcast() => return false,
        IpAddr::V4(_) => false,
        // It means another node on each link.
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(link_local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

/// The range with its host bits cleared, as kube-proxy reads them.
///
/// It must leave room for the reserved address and a pod, and touch no special range.
pub(super) fn parse_cidr(value: &str) -> Result<IpNetwork, BadRange> {
    let cidr = range(value).ok_or(BadRange::NotARange)?;
    match SpecialRange::touched_by(cidr) {
        Some(special) => Err(BadRange::Special(special)),
        None => Ok(cidr),
    }
}

fn range(value: &str) -> Option<IpNetwork> {
    // Without a slash the parser takes a single address, which the API never means.
    if !value.contains('/') {
        return None;
    }
    let cidr: IpNetwork = value.parse().ok()?;
    let longest = if cidr.is_ipv4() { 30 } else { 126 };
    if cidr.prefix() == 0 || cidr.prefix() > longest {
        return None;
    }
    IpNetwork::new(cidr.network(), cidr.prefix()).ok()
}

/// The address of a podCIDR that no pod gets: the one after the network's.
pub fn reserved_address(cidr: IpNetwork) -> IpAddr {
    match cidr.network() {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().saturating_add(1)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().saturating_add(1)).into(),
    }
}

/// Hardware address of a node's overlay device. It follows from the name, so that peers
/// need not be told.
pub fn vtep_mac(node: &str) -> MacAddr {
    let hash = Sha256::digest(node);
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&hash[..6]);
    MacAddr::local(bytes)
}

/// Whether two ranges have an address in common.
pub(super) fn overlap(a: IpNetwork, b: IpNetwork) -> bool {
    a.contains(b.network()) || b.contains(a.network())
}
