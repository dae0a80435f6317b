//! Routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage,
};

use crate::{Family, IfIndex, Scope};

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

/// A route with at most one next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Packets to these addresses; prefix length 0 is the default route.
    pub destination: IpNetwork,
    /// Next router.
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

/// Which routes to list; absent fields match everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteFilter {
    /// Family.
    pub family: Family,
    /// Table.
    pub table: Option<TableId>,
    /// Owner.
    pub protocol: Option<RouteProtocol>,
    /// Outgoing interface.
    pub oif: Option<IfIndex>,
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
        attributes.extend(self.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
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
                RouteAttribute::Gateway(value) => route.gateway = ip(value),
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

impl RouteFilter {
    /// All routes of one owner.
    pub fn of(family: Family, protocol: RouteProtocol) -> Self {
        Self {
            family,
            table: None,
            protocol: Some(protocol),
            oif: None,
        }
    }

    pub(crate) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = self.family.wire();
        if let Some(protocol) = self.protocol {
            message.header.protocol = protocol.0.into();
        }
        message
            .attributes
            .extend(self.table.map(|table| RouteAttribute::Table(table.0)));
        message
            .attributes
            .extend(self.oif.map(|index| RouteAttribute::Oif(index.0)));
        message
    }

    /// The kernel filters only with strict checking, and IPv6 host routes
    /// that it cloned come along all the same.
    pub(crate) fn matches(&self, route: &Route) -> bool {
        self.table.is_none_or(|table| table == route.table)
            && self
                .protocol
                .is_none_or(|protocol| protocol == route.protocol)
            && self.oif.is_none_or(|oif| Some(oif) == route.oif)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_and_back() {
        let mut route = Route::to("10.244.3.0/24".parse().unwrap());
        route.gateway = Some("172.30.0.12".parse().unwrap());
        route.oif = Some(IfIndex(4));
        route.prefsrc = Some("10.244.1.1".parse().unwrap());
        route.table = TableId(1000);
        route.onlink = true;
        route.metric = Some(7);
        assert_eq!(Route::parse(&route.message()), Some(route.clone()));
        assert_eq!(
            route.to_string(),
            "10.244.3.0/24 via 172.30.0.12 dev ifindex 4 table 1000"
        );
        let default = Route::to("::/0".parse().unwrap());
        assert_eq!(Route::parse(&default.message()), Some(default));
    }
}
