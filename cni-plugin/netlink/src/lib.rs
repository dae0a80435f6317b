//! Typed, synchronous verbs over rtnetlink.
//!
//! For the CNI binary, which must start and end within milliseconds, and for
//! the pod network, which calls these verbs from a blocking thread. Callers
//! see [`Link`], [`Address`], [`Route`], [`Rule`], [`Neighbour`] and [`FdbEntry`], never a message or
//! an attribute list.
//!
//! ```text
//! Request::route_replace(&route) ─┐
//! Request::link_set_up(index)    ─┼─► Socket::execute ─► Wire ─► kernel
//! Request::address_add(&address) ─┘   (one send, one ack per request)
//! ```
//!
//! A socket belongs for ever to the network namespace in which it was opened,
//! so "which namespace" is "which socket": [`Socket::open_in`] is the only
//! place that has to enter one, and [`netns::in_namespace`] is the only
//! function that does.
//!
//! What it deliberately leaves out: async, a runtime, caching, retries of failed writes,
//! and any decision about which objects should exist. [`wire`] is public
//! because the firewall crate speaks another netlink protocol with it. [`Xtables`] is
//! no netlink at all: that there is none for iptables-legacy is why it is needed.

mod address;
mod error;
mod fdb;
#[cfg(fuzzing)]
pub mod fuzzing;
mod link;
mod mac;
mod monitor;
mod neighbour;
pub mod netns;
mod qdisc;
mod request;
mod route;
mod rule;
mod socket;
mod special;
mod vxlan;
pub mod wire;
mod xtables;

pub use address::{Address, Scope};
pub use error::{NetlinkError, Reason, Retry};
pub use fdb::FdbEntry;
pub use link::{IfIndex, Link, VethEnd, VethPair};
pub use mac::{MacAddr, ParseMacError};
pub use monitor::{Event, Groups, Monitor, Switched};
pub use neighbour::Neighbour;
pub use netns::Netns;
pub use qdisc::TokenBucket;
pub use request::Request;
pub use route::{Route, RouteFilter, RouteKind, RouteProtocol, TableId};
pub use rule::Rule;
pub use socket::Socket;
pub use special::SpecialRange;
pub use vxlan::{Vxlan, VxlanDevice};
pub use xtables::{Shape, Xtables};

/// Address family of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family that an address belongs to.
    pub fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    fn wire(self) -> netlink_packet_route::AddressFamily {
        match self {
            Self::V4 => netlink_packet_route::AddressFamily::Inet,
            Self::V6 => netlink_packet_route::AddressFamily::Inet6,
        }
    }
}
