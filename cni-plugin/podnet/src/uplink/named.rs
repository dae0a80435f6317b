//! What a link leads to that the operator has named.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, IfIndex, NetlinkError, RouteFilter, Socket, TableId};

use super::{FoundBy, Uplink};

/// The link that the operator has named. Where a node can be reached by several links, the
/// routes would choose among them.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) link: IfIndex,
    /// Of its addresses: what is there even while it is down and has no route.
    own: Vec<IpNetwork>,
    routes: Vec<IpNetwork>,
}

impl Named {
    /// Nothing, if `uplink` was found by itself: then the routes decide.
    pub(crate) fn find(socket: &mut Socket, uplink: &Uplink) -> Result<Option<Self>, NetlinkError> {
        match uplink.by {
            FoundBy::Name => Self::look(socket, uplink.link.index).map(Some),
            FoundBy::Address(_) | FoundBy::DefaultRoute => Ok(None),
        }
    }

    fn look(socket: &mut Socket, link: IfIndex) -> Result<Self, NetlinkError> {
        let (mut own, mut routes) = (Vec::new(), Vec::new());
        for family in [Family::V4, Family::V6] {
            match socket.addresses(family, Some(link)) {
                Ok(addresses) => own.extend(addresses.into_iter().map(|a| a.network)),
                // A kernel without this family has none of it.
                Err(error) if error.is_unsupported() => continue,
                Err(error) => return Err(error),
            }
            let by_link = socket.routes(&RouteFilter {
                family,
                table: Some(TableId::MAIN),
                protocol: None,
                oif: Some(link),
            })?;
            routes.extend(by_link.into_iter().map(|route| route.destination));
        }
        Ok(Self { link, own, routes })
    }

    /// The link, if it leads to `ip`.
    pub(crate) fn towards(&self, ip: IpAddr) -> Option<IfIndex> {
        let mut networks = self.own.iter().chain(&self.routes);
        networks.any(|n| n.contains(ip)).then_some(self.link)
    }

    /// The link, if `ip` is a neighbour on it.
    pub(crate) fn beside(&self, ip: IpAddr) -> Option<IfIndex> {
        let mut networks = self.own.iter();
        networks.any(|n| n.contains(ip)).then_some(self.link)
    }
}

/// The networks that the link called `name` leads to, but for the whole rest of the world.
/// None, if there is no such link.
pub(crate) fn networks(socket: &mut Socket, name: &str) -> Result<Vec<IpNetwork>, NetlinkError> {
    let link = match socket.link_by_name(name) {
        Ok(link) => link.index,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let Named {
        own, mut routes, ..
    } = Named::look(socket, link)?;
    routes.extend(own);
    routes.retain(|network| network.prefix() > 0);
    Ok(routes)
}
