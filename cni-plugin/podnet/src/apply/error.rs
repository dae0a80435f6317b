//! What went wrong, and what was done.

use std::io;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_firewall::FirewallError;
use seaway_netlink::{NetlinkError, Route};

use crate::Skip;
use crate::uplink::UplinkError;

/// A part of the pod network could not be programmed, or looked at.
#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    /// The kernel did not take, give or show a route, link, address or entry.
    #[error("program the pod network's routes")]
    Routes {
        /// Which one, and why.
        #[source]
        source: NetlinkError,
    },
    /// Somebody else has a route to the same addresses; it stays.
    #[error("route {cidr} via {via}: somebody else has a route to it")]
    ForeignRoute {
        /// The peer's podCIDR.
        cidr: IpNetwork,
        /// The next hop that it should have.
        via: IpAddr,
    },
    /// A link of another kind has the name of the overlay's device; it stays.
    #[error("make VXLAN device {name}: there is a link of this name, of kind {kind}")]
    ForeignDevice {
        /// The name.
        name: String,
        /// What `ip -d link` calls it.
        kind: String,
    },
    /// The overlay's device cannot be made or changed.
    #[error("make VXLAN device {name}")]
    Device {
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: NetlinkError,
    },
    /// IPv6 does not fit through the overlay.
    #[error(
        "make the pod network for IPv6: uplink {uplink} has MTU {mtu}, but {minimum} are needed: 1280 and the overlay's headers"
    )]
    UplinkTooSmall {
        /// The link's name.
        uplink: String,
        /// What it has, bytes.
        mtu: u32,
        /// What it has to have.
        minimum: u32,
    },
    /// The operator's MTU is less than IPv6 takes.
    #[error("make the pod network for IPv6: --mtu is {mtu}, but 1280 are needed")]
    PodMtuTooSmall {
        /// As given, bytes.
        mtu: u32,
    },
    /// Packets of pods would not be passed on.
    #[error("write {path}")]
    Sysctl {
        /// The kernel's switch.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Pods would not reach the world outside.
    #[error("masquerade what leaves the cluster")]
    Masquerade {
        /// Why.
        #[source]
        source: FirewallError,
    },
    /// The link to other nodes, and with it the MTU of pods, cannot be told.
    #[error(transparent)]
    Uplink(UplinkError),
}

impl PodNetworkError {
    pub(crate) fn netlink(source: NetlinkError) -> Self {
        Self::Routes { source }
    }
}

/// What a call of [`PodNetwork::apply`](crate::PodNetwork::apply) did.
#[derive(Debug, Default)]
pub struct Changes {
    /// Routes, rules, addresses and entries added or corrected.
    pub replaced: usize,
    /// Those that are wanted no more, removed.
    pub removed: usize,
    /// Whether forwarding had to be switched on, the masquerade or the device written.
    pub node: bool,
    /// Peers that the kernel shows to be out of reach of a direct route.
    pub skipped: Vec<Skip>,
    /// What could not be programmed; the rest was.
    pub failed: Vec<PodNetworkError>,
}

impl Changes {
    /// Whether anything was written or removed.
    pub fn any(&self) -> bool {
        self.replaced + self.removed > 0 || self.node
    }

    /// Takes note of something written; tells whether it was.
    pub(super) fn wrote(&mut self, outcome: Result<(), NetlinkError>) -> bool {
        match outcome {
            Ok(()) => self.replaced += 1,
            Err(source) => {
                self.failed.push(PodNetworkError::netlink(source));
                return false;
            }
        }
        true
    }

    /// As [`wrote`](Self::wrote), for a route to a peer.
    pub(super) fn wrote_route(&mut self, route: &Route, outcome: Result<(), NetlinkError>) {
        match (route.gateway, outcome) {
            (Some(via), Err(error)) if error.is_exists() => {
                let cidr = route.destination;
                self.failed
                    .push(PodNetworkError::ForeignRoute { cidr, via });
            }
            (_, outcome) => drop(self.wrote(outcome)),
        }
    }

    /// Takes note of something removed, or gone already.
    pub(super) fn removed(&mut self, outcome: Result<bool, NetlinkError>) {
        match outcome {
            Ok(there) => self.removed += usize::from(there),
            Err(source) => self.failed.push(PodNetworkError::netlink(source)),
        }
    }
}
