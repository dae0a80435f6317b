//! The pod network between nodes.
//!
//! For: what this node's kernel needs so that its pods reach the pods of every
//! other node and the world outside, in both families. [`desired`] turns Nodes,
//! [`Settings`] and proven [`Paths`] into [`Desired`] and is pure; [`PodNetwork`]
//! makes the kernel agree with it. [`Probes`] decides which paths are proven, and
//! [`ConfFile`] is the CNI conf that tells the container runtime that this node can
//! start pods; [`StateFile`] tells the plugin's `STATUS` the same.
//!
//! ```text
//! Nodes ───┐
//! Settings ┼► desired (pure) ─► Desired ─┬► PodNetwork::apply ─► device, entries, routes,
//! Paths ───┘                             │                      rule, nft, sysctl
//!   ▲                                    └► ConfFile::write   ─► 05-seaway.conflist
//! Probes ◄─ echoes, by the table of probes
//! ```
//!
//! Each peer's podCIDR has one route of protocol 83, by one of two ways:
//!
//! ```text
//! overlay: CIDR via its reserved address dev seaway.vx src own reserved address
//!            neighbour: reserved address ─► hardware address, from the peer's name
//!            FDB:       hardware address ─► the peer's InternalIP
//! direct:  CIDR via the peer's InternalIP [src own reserved address]
//! ```
//!
//! A change of the way is one replaced route, so that no packet is lost. Neighbours and
//! forwarding entries are there for all peers, whatever their way is, and the device has
//! no other: nothing is asked for and nothing floods. What has an address of this node's
//! range that no pod has is answered here, as unreachable.
//!
//! It deliberately leaves out: watching Nodes and deciding when to apply (the daemon
//! does), pod interfaces and their host routes (seaway-cni does), the way of answers,
//! which is each peer's own decision.

mod apply;
mod conf;
mod desired;
mod notices;
mod probe;
mod settings;
mod state;
mod sysctl;
mod uplink;

pub use apply::{Changes, PodNetwork, PodNetworkError};
pub use conf::{ConfError, ConfFile, NetworkConf};
pub use desired::{
    BadRange, Desired, Node, Overlay, PROBE_MARK, PROBE_PRIORITY, PROBE_TABLE, Path, Peer,
    PeerCidr, Probe, Skip, SkipReason, Waiting, desired, reserved_address, vtep_mac,
};
pub use ipnetwork::IpNetwork;
pub use notices::{Notices, Watched};
pub use probe::{Due, Echo, EchoSocket, ProbeError, Probes, Target};
pub use seaway_netlink::{Family, IfIndex, MacAddr};
pub use settings::{Paths, PodRoutes, Settings, UnknownPodRoutes, VxlanSettings};
pub use state::{Serving, StateFile};
pub use uplink::{FoundBy, Named, Uplink, UplinkError};
