//! What this node needs for its pods to reach others, without looking at the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, IfIndex, MacAddr, TableId};

use crate::{Named, Paths, PodRoutes};

mod node;
mod plan;
#[cfg(test)]
mod props;
mod reason;
#[cfg(test)]
mod tests;

pub use node::{Node, reserved_address, vtep_mac};
pub use plan::desired;
pub use reason::{BadRange, Skip, SkipReason, Waiting};

/// Packet mark of probes: they take the direct path whatever the routes to pods say.
/// Clear of the bits that others use: 0x4000 and 0x8000 (kube-proxy), 0x2000 (portmap),
/// 0x80 (AWS), 0xf00 (Cilium), 0xff0000 (Tailscale), 0xffff0000 (Calico).
pub const PROBE_MARK: u32 = 0x53;
/// The table that packets with the mark are routed by.
pub const PROBE_TABLE: TableId = TableId(83);
/// Of the rule that says so; before those of others, behind that of local addresses (0).
pub const PROBE_PRIORITY: u32 = 83;

/// What this node needs for its pods to reach others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// How packets for pods of other nodes travel.
    pub mode: PodRoutes,
    /// This node's own podCIDRs, host bits cleared, in the API's order.
    pub pod_cidrs: Vec<IpNetwork>,
    /// This node's addresses, the first of each family, IPv4 first; the first one is the
    /// overlay's.
    pub node_ips: Vec<IpAddr>,
    /// The overlay device; none in direct mode.
    pub overlay: Option<Overlay>,
    /// What leads to the other nodes' pods, by node name.
    pub peers: BTreeMap<String, Peer>,
    /// Paths to be probed: each may turn out to carry pod addresses without the overlay.
    pub probes: Vec<Probe>,
    /// Destinations that see the pod's own address; all others see the node's.
    pub non_masquerade: Vec<IpNetwork>,
    /// Name of the link to the other nodes, if the operator has chosen one.
    pub uplink: Option<String>,
    /// What that link leads to, as far as it matters to nodes' addresses; nothing if it is not
    /// there.
    pub named: Option<Named>,
    /// All nodes' InternalIPs, those that do not count included: routes to them may change what
    /// does. Empty without [`Self::named`].
    pub internal_ips: BTreeSet<IpAddr>,
    /// MTU of pod interfaces, bytes, if the operator has chosen one.
    pub mtu: Option<u32>,
    /// Peers, or single podCIDRs of peers, that nothing leads to.
    pub skipped: Vec<Skip>,
}

/// The overlay device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Name of the device.
    pub device: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Hardware address of the device.
    pub mac: MacAddr,
    /// This node's address in the underlay.
    pub local: IpAddr,
    /// What the device holds: the reserved address of each own podCIDR.
    pub addresses: Vec<IpAddr>,
}

impl Overlay {
    /// Bytes of a packet that the overlay takes: outer IP and UDP headers, VXLAN
    /// header and inner Ethernet header (RFC 7348, section 5).
    pub fn overhead(&self) -> u32 {
        match self.local {
            IpAddr::V4(_) => 20 + 8 + 8 + 14,
            IpAddr::V6(_) => 40 + 8 + 8 + 14,
        }
    }
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address in the underlay, of the family of [`Overlay::local`].
    pub vtep: Option<IpAddr>,
    /// Hardware address of its overlay device.
    pub mac: MacAddr,
    /// Its podCIDRs.
    pub cidrs: Vec<PeerCidr>,
}

/// A podCIDR of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCidr {
    /// The range, host bits cleared.
    pub cidr: IpNetwork,
    /// The address in it that no pod has.
    pub reserved: IpAddr,
    /// Source address that the node's own packets get; none where it has none of the family
    /// but the underlay's.
    pub source: Option<IpAddr>,
    /// How packets get there.
    pub path: Path,
}

/// How packets get to a peer's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By a plain route.
    Direct {
        /// The peer's address, of the podCIDR's family.
        via: IpAddr,
    },
    /// Through the overlay, to [`Peer::vtep`].
    Overlay,
}

/// A path to be probed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// The peer's name.
    pub node: String,
    /// For which of its podCIDRs the answer counts.
    pub family: Family,
    /// This node's reserved address.
    pub source: IpAddr,
    /// The peer's reserved address, which the peer's kernel answers for.
    pub target: IpAddr,
    /// The peer's address, which the direct path leads by.
    pub via: IpAddr,
    /// Whether a route to pods leads to `target`. The answer to the peer's own probe needs one.
    pub routed: bool,
    /// The ranges that the answer counts for.
    pub cidrs: Vec<IpNetwork>,
}

impl Desired {
    /// Whether pods of this node have addresses of `family`.
    pub fn has_pods_of(&self, family: Family) -> bool {
        let mut own = self.pod_cidrs.iter();
        own.any(|cidr| Family::of(cidr.ip()) == family)
    }

    /// Whether this node has neither an address that others can send to (127.0.0.1 is none)
    /// nor others to send to: it needs no uplink.
    pub fn is_alone(&self) -> bool {
        self.overlay.is_none() && self.node_ips.is_empty() && self.peers.is_empty()
    }

    /// The probes whose direct paths `routes` (podCIDR to next hop) are on already.
    pub fn in_use(&self, routes: &BTreeMap<IpNetwork, IpAddr>) -> Paths {
        let used = self.probes.iter().filter(|probe| {
            let mut cidrs = probe.cidrs.iter();
            cidrs.all(|cidr| routes.get(cidr) == Some(&probe.via))
        });
        used.map(|probe| (probe.node.clone(), probe.family))
            .collect()
    }

    /// The operator's link, if packets to `peer` shall take it whatever the routes say.
    pub(crate) fn link_towards(&self, peer: IpAddr) -> Option<IfIndex> {
        self.named.as_ref()?.towards(peer)
    }

    /// All podCIDRs of peers.
    pub fn routes(&self) -> impl Iterator<Item = (&Peer, &PeerCidr)> {
        let peers = self.peers.values();
        peers.flat_map(|peer| peer.cidrs.iter().map(move |cidr| (peer, cidr)))
    }
}

impl fmt::Display for Desired {
    /// A line for each object, for goldens and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cidr in &self.pod_cidrs {
            writeln!(f, "pod-cidr {cidr}")?;
        }
        if let Some(overlay) = &self.overlay {
            let Overlay {
                device, vni, port, ..
            } = overlay;
            writeln!(
                f,
                "vxlan {device} vni {vni} port {port} local {}",
                overlay.local
            )?;
            for address in &overlay.addresses {
                writeln!(f, "address {address} dev {device}")?;
            }
        }
        for (name, peer) in &self.peers {
            for PeerCidr {
                cidr,
                reserved,
                source,
                path,
            } in &peer.cidrs
            {
                write!(f, "route {cidr} ")?;
                match (path, peer.vtep) {
                    (Path::Direct { via }, _) => write!(f, "via {via}")?,
                    (Path::Overlay, Some(vtep)) => write!(f, "via {reserved} at {vtep}")?,
                    (Path::Overlay, None) => write!(f, "via {reserved} at nowhere")?,
                }
                if let Some(source) = source {
                    write!(f, " src {source}")?;
                }
                writeln!(f, " node {name}")?;
            }
        }
        for Probe {
            source,
            target,
            via,
            ..
        } in &self.probes
        {
            writeln!(f, "probe {target} via {via} from {source}")?;
        }
        for cidr in &self.non_masquerade {
            writeln!(f, "no-masquerade {cidr}")?;
        }
        for skip in &self.skipped {
            writeln!(f, "skip {skip}")?;
        }
        Ok(())
    }
}
