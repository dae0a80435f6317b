//! The pod network between nodes.
//!
//! For: what this node's kernel needs so that its pods reach the pods of every
//! other node and the world outside. [`desired`] turns Nodes into [`Desired`]
//! and is pure; [`PodNetwork`] makes the kernel agree with it: one route per
//! peer podCIDR by that node's InternalIP (route protocol 83, so that they are
//! ours after a restart), masquerade of what leaves the cluster, and IP
//! forwarding. [`ConfFile`] is the CNI conf that tells the container runtime
//! that this node can start pods.
//!
//! ```text
//! Nodes ─► desired (pure) ─► Desired ─► PodNetwork::apply ─► routes, nft, sysctl
//!                                └────► ConfFile::write   ─► 05-seaway.conflist
//! ```
//!
//! It deliberately leaves out: watching Nodes (the daemon does), pod interfaces and
//! their /32 routes (seaway-cni does), overlays (this first version wants nodes
//! that reach each other's podCIDRs directly, so on one subnet), IPv6.
//!
//! The `.1` of the podCIDR stays reserved by the IPAM but is put on no link: with
//! direct routes the node's InternalIP is a source that every pod can answer.

mod apply;
mod conf;
mod desired;
mod sysctl;

pub use apply::{Changes, PodNetwork, PodNetworkError};
pub use conf::{ConfError, ConfFile, NetworkConf};
pub use desired::{Desired, Node, Skip, SkipReason, Waiting, desired};
