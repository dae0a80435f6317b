//! Which routes to list.

use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use super::{Route, RouteProtocol, TableId};
use crate::{Family, IfIndex};

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
