//! What a link leads to that the operator has named.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{
    Address, Family, IfIndex, Link, NetlinkError, Route, RouteFilter, RouteKind, RouteProtocol,
    Scope, Socket, TableId,
};

#[cfg(test)]
pub(crate) mod tests;

/// The link that the operator has named. Where a node can be reached by several links, the
/// routes would choose among them.
///
/// It leads to an address if none of the other links leads there by a narrower network: a
/// default route is no reason to send past the tunnel that has a route of its own to a peer.
/// Of equal ones the named link counts, whatever the metrics are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub(crate) link: IfIndex,
    /// Of its addresses: what is there even while it is down and has no route.
    own: BTreeSet<IpNetwork>,
    /// What its routes lead to without a gateway: neighbours.
    near: BTreeSet<IpNetwork>,
    /// What its other routes lead to.
    far: BTreeSet<IpNetwork>,
    /// What the routes of other links lead to.
    elsewhere: BTreeSet<IpNetwork>,
}

impl Named {
    /// The link called `name`, if there is one. That something could not be listed does not
    /// mean that the link leads nowhere.
    pub(crate) fn find(socket: &mut Socket, name: &str) -> Result<Option<Self>, NetlinkError> {
        let Some(Link { index, .. }) = there(socket.link_by_name(name))? else {
            return Ok(None);
        };
        let (mut addresses, mut routes) = (Vec::new(), Vec::new());
        for family in [Family::V4, Family::V6] {
            match socket.addresses(family, Some(index)) {
                Ok(some) => addresses.extend(some),
                // A kernel without this family has none of it.
                Err(error) if error.is_unsupported() => continue,
                Err(error) => return Err(error),
            }
            routes.extend(socket.routes(&RouteFilter {
                family,
                table: Some(TableId::MAIN),
                protocol: None,
                oif: None,
            })?);
        }
        Ok(Some(Self::new(index, &addresses, &routes)))
    }

    /// `link` with these addresses, where the main table has these routes.
    pub(crate) fn new(link: IfIndex, addresses: &[Address], routes: &[Route]) -> Self {
        let mut named = Self {
            link,
            own: addresses.iter().map(|a| a.network).collect(),
            near: BTreeSet::new(),
            far: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
        };
        // What we have made follows from the choice and is no reason for it.
        let counts =
            |r: &&Route| r.kind == RouteKind::Unicast && r.protocol != RouteProtocol::SEAWAY;
        for route in routes.iter().filter(counts) {
            let networks = match route.oif {
                Some(oif) if oif == link && is_near(route) => &mut named.near,
                Some(oif) if oif == link => &mut named.far,
                _ => &mut named.elsewhere,
            };
            networks.insert(route.destination);
        }
        named
    }

    /// Only what matters to these addresses.
    pub(crate) fn about(mut self, ips: &BTreeSet<IpAddr>) -> Self {
        let Self {
            own,
            near,
            far,
            elsewhere,
            ..
        } = &mut self;
        for networks in [own, near, far, elsewhere] {
            networks.retain(|network| has_any(*network, ips));
        }
        self
    }

    /// The link, if it leads to `ip`.
    pub(crate) fn towards(&self, ip: IpAddr) -> Option<IfIndex> {
        self.length(ip).map(|_| self.link)
    }

    /// The link, if `ip` is a neighbour on it now: the kernel takes it as a gateway there.
    pub(crate) fn beside(&self, ip: IpAddr) -> Option<IfIndex> {
        let near = longest(&self.near, ip)?;
        let others = longest(&self.far, ip).max(longest(&self.elsewhere, ip));
        (others <= Some(near)).then_some(self.link)
    }

    /// How little speaks for reaching a node by `ip`, if it has several addresses: nothing
    /// does if the link does not lead there, and little if it leads everywhere.
    pub(crate) fn rank(&self, ip: IpAddr) -> u8 {
        match self.length(ip) {
            Some(1..) => 0,
            Some(0) => 1,
            None => 2,
        }
    }

    /// That of the narrowest network by which the link leads to `ip`.
    fn length(&self, ip: IpAddr) -> Option<u8> {
        let by_route = longest(&self.near, ip).max(longest(&self.far, ip));
        let here = by_route.max(longest(&self.own, ip));
        here.filter(|_| longest(&self.elsewhere, ip) <= here)
    }
}

/// Only that there is no such link is an answer.
fn there(found: Result<Link, NetlinkError>) -> Result<Option<Link>, NetlinkError> {
    match found {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The scope of IPv4 says whether the kernel takes what a route leads to for neighbours.
fn is_near(route: &Route) -> bool {
    let scope = route.destination.is_ipv6() || route.scope == Scope::Link;
    route.gateway.is_none() && scope
}

fn longest(networks: &BTreeSet<IpNetwork>, ip: IpAddr) -> Option<u8> {
    let there = networks.iter().filter(|network| network.contains(ip));
    there.map(IpNetwork::prefix).max()
}

/// Whether `network` has one of `ips`.
pub(crate) fn has_any(network: IpNetwork, ips: &BTreeSet<IpAddr>) -> bool {
    let mut within = ips.range(network.network()..=network.broadcast());
    within.next().is_some()
}
