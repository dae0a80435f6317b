//! Routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop,
    RouteNextHopFlags, RouteVia,
};

use crate::{Family, IfIndex, Scope};

mod filter;
#[cfg(test)]
mod tests;

pub use filter::RouteFilter;

/// Who made a route (`rtm_protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// Made by the kernel itself (`RTPROT_KERNEL`).
    pub const KERNEL: Self = Self(2);
    /// What iproute2 uses when nothing is said (`RTPROT_BOOT`).
    pub const BOOT: Self = Self(3);
    /// Ours; nobody else's in iproute2's `rt_protos`.
    pub const SEAWAY: Self = Self(83);
}

/// Routing table number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// The table that everybody looks into (`RT_TABLE_MAIN`).
    pub const MAIN: Self = Self(254);
    /// Local and broadcast addresses, kept by the kernel (`RT_TABLE_LOCAL`).
    pub const LOCAL: Self = Self(255);
}

/// What happens to a packet that a route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RouteKind {
    /// Sent on.
    #[default]
    Unicast,
    /// Delivered here.
    Local,
    /// Dropped silently.
    Blackhole,
    /// Answered with host unreachable.
    Unreachable,
    /// Answered with administratively prohibited.
    Prohibit,
    /// Another number of `rtm_type`.
    Other(u8),
}

/// A route with at most one next hop. Of one that the kernel has with several, the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Packets to these addresses; prefix length 0 is the default route.
    pub destination: IpNetwork,
    /// Next router. That of an IPv4 route may have an IPv6 address.
    pub gateway: Option<IpAddr>,
    /// Outgoing interface.
    pub oif: Option<IfIndex>,
    /// Source address that local senders get.
    pub prefsrc: Option<IpAddr>,
    /// Scope. The kernel fixes it to global for IPv6.
    pub scope: Scope,
    /// Owner.
    pub protocol: RouteProtocol,
    /// Table.
    pub table: TableId,
    /// Trust that the gateway is on the link.
    pub onlink: bool,
    /// Lower wins; absent is 0 for IPv4 and 1024 for IPv6.
    pub metric: Option<u32>,
    /// What happens to the packet.
    pub kind: RouteKind,
}

impl Route {
    /// A route of ours in the main table.
    pub fn to(destination: IpNetwork) -> Self {
        Self {
            destination,
            gateway: None,
            oif: None,
            prefsrc: None,
            scope: Scope::Global,
            protocol: RouteProtocol::SEAWAY,
            table: TableId::MAIN,
            onlink: false,
            metric: None,
            kind: RouteKind::Unicast,
        }
    }

    pub(crate) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: Family::of(self.destination.ip()).wire(),
            destination_prefix_length: self.destination.prefix(),
            protocol: self.protocol.0.into(),
            scope: self.scope.into(),
            kind: u8::from(self.kind).into(),
            flags: if self.onlink {
                RouteFlags::Onlink
            } else {
                RouteFlags::empty()
            },
            ..RouteHeader::default()
        };
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Table(self.table.0));
        if self.destination.prefix() > 0 {
            attributes.push(RouteAttribute::Destination(
                self.destination.network().into(),
            ));
        }
        attributes.extend(self.gateway.map(|ip| self.next_router(ip)));
        attributes.extend(self.prefsrc.map(|ip| RouteAttribute::PrefSource(ip.into())));
        attributes.extend(self.oif.map(|index| RouteAttribute::Oif(index.0)));
        attributes.extend(self.metric.map(RouteAttribute::Priority));
        message
    }

    /// `None`: a family that is not IP.
    pub(crate) fn parse(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let any = match header.address_family {
            AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let mut destination = any;
        let mut route = Self::to(IpNetwork::from(any));
        route.scope = header.scope.into();
        route.protocol = RouteProtocol(header.protocol.into());
        route.table = TableId(header.table.into());
        route.onlink = header.flags.contains(RouteFlags::Onlink);
        route.kind = u8::from(header.kind).into();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(value) => destination = ip(value)?,
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => {
                    route.gateway = next_router(attribute);
                }
                RouteAttribute::MultiPath(hops) => route.take_first(hops),
                RouteAttribute::PrefSource(value) => route.prefsrc = ip(value),
                RouteAttribute::Oif(index) => route.oif = Some(IfIndex(*index)),
                RouteAttribute::Priority(metric) => route.metric = Some(*metric),
                RouteAttribute::Table(table) => route.table = TableId(*table),
                _ => {}
            }
        }
        route.destination = IpNetwork::new(destination, header.destination_prefix_length).ok()?;
        Some(route)
    }

    /// One for all, as a routed fabric has several links to the same place. The first one even
    /// while it is dead: else who goes by a route's link would move with every cable.
    fn take_first(&mut self, hops: &[RouteNextHop]) {
        let Some(hop) = hops.first() else { return };
        self.oif = Some(IfIndex(hop.interface_index));
        self.gateway = hop.attributes.iter().find_map(next_router);
        self.onlink |= hop.flags.contains(RouteNextHopFlags::Onlink);
    }

    fn next_router(&self, gateway: IpAddr) -> RouteAttribute {
        match gateway {
            IpAddr::V6(ip) if self.destination.is_ipv4() => {
                RouteAttribute::Via(RouteVia::Inet6(ip))
            }
            ip => RouteAttribute::Gateway(ip.into()),
        }
    }
}

/// One of another family than the route's has an attribute of its own.
fn next_router(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(value) => ip(value),
        RouteAttribute::Via(RouteVia::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

impl fmt::Display for Route {
    /// As in `ip route`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(oif) = self.oif {
            write!(f, " dev {oif}")?;
        }
        if self.table != TableId::MAIN {
            write!(f, " table {}", self.table.0)?;
        }
        Ok(())
    }
}

impl From<RouteKind> for u8 {
    /// `RTN_*`, include/uapi/linux/rtnetlink.h.
    fn from(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Unicast => 1,
            RouteKind::Local => 2,
            RouteKind::Blackhole => 6,
            RouteKind::Unreachable => 7,
            RouteKind::Prohibit => 8,
            RouteKind::Other(number) => number,
        }
    }
}

impl From<u8> for RouteKind {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            other => Self::Other(other),
        }
    }
}
