//! Changes that somebody else makes, as the kernel tells of them.
//!
//! A node has thousands of changes that concern nobody here: each pod brings a link,
//! addresses and routes. [`Watched`] says which ones do, and is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use ipnetwork::IpNetwork;
use nix::net::if_::if_nametoindex;
use seaway_netlink::{
    Address, Event, Family, FdbEntry, Groups, IfIndex, Link, MacAddr, Monitor, Neighbour,
    NetlinkError, Route, RouteKind, RouteProtocol, Switched, TableId,
};

use crate::{Desired, Uplink, uplink};

#[cfg(test)]
mod tests;

/// What the pod network stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    uplink: Option<(IfIndex, String)>,
    /// What the operator calls it, whether it is there or not.
    name: Option<String>,
    device: Option<String>,
    addresses: BTreeSet<IpAddr>,
    /// The link that the operator has named, and the nodes' addresses that it may lead to.
    named: Option<(IfIndex, BTreeSet<IpAddr>)>,
    routes: BTreeSet<IpNetwork>,
    /// Of this node's pods.
    families: BTreeSet<Family>,
    /// The overlay's: peers' hardware addresses by their reserved ones, and where they are and by
    /// which link.
    neighbours: BTreeMap<IpAddr, MacAddr>,
    entries: BTreeMap<MacAddr, (IpAddr, Option<IfIndex>)>,
}

impl Watched {
    /// What `want` needs, while its traffic leaves by `uplink`.
    pub fn new(want: &Desired, uplink: Option<&Uplink>) -> Self {
        let overlay = want.overlay.as_ref();
        let reserved = overlay.iter().flat_map(|overlay| &overlay.addresses);
        Self {
            uplink: uplink.map(|uplink| (uplink.link.index, uplink.link.name.clone())),
            name: want.uplink.clone(),
            device: overlay.map(|overlay| overlay.device.clone()),
            addresses: want.node_ips.iter().chain(reserved).copied().collect(),
            named: want
                .named
                .as_ref()
                .map(|named| (named.link, want.internal_ips.clone())),
            routes: want.routes().map(|(_, to)| to.cidr).collect(),
            families: want.pod_cidrs.iter().map(|c| Family::of(c.ip())).collect(),
            neighbours: want
                .routes()
                .filter(|(peer, _)| peer.vtep.is_some())
                .map(|(peer, to)| (to.reserved, peer.mac))
                .collect(),
            entries: want
                .peers
                .values()
                .filter_map(|peer| Some((peer.mac, peer.vtep?)))
                .map(|(mac, vtep)| (mac, (vtep, want.link_towards(vtep))))
                .collect(),
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Link(link) | Event::LinkRemoved(link) => self.concerns_link(link),
            Event::Address(address) | Event::AddressRemoved(address) => {
                self.concerns_address(address)
            }
            Event::Route(route) => self.may_turn(route) || self.in_the_way(route),
            Event::RouteRemoved(route) => {
                self.may_turn(route) || was_ours(route) || self.routes.contains(&route.destination)
            }
            Event::RuleRemoved(rule) => rule.protocol == RouteProtocol::SEAWAY,
            Event::Rule(_) => false,
            Event::Neighbour(now) => self.has_neighbour(now) == Some(false),
            Event::NeighbourRemoved(gone) => self.has_neighbour(gone).is_some(),
            Event::Fdb(now) => self.has_entry(now) == Some(false),
            Event::FdbRemoved(gone) => self.has_entry(gone) == Some(true),
            Event::Switched(switched) => self.concerns_forwarding(switched),
            Event::Overrun => true,
        }
    }

    fn concerns_link(&self, link: &Link) -> bool {
        let uplink = self.uplink.as_ref();
        uplink.is_some_and(|(index, name)| *index == link.index || *name == link.name)
            || self.name.as_ref() == Some(&link.name)
            || self.device.as_ref() == Some(&link.name)
    }

    fn concerns_address(&self, address: &Address) -> bool {
        let of_named = |(link, _): &(IfIndex, _)| *link == address.ifindex;
        self.addresses.contains(&address.network.ip()) || self.named.as_ref().is_some_and(of_named)
    }

    /// By it the uplink may be another, or lead to other nodes, or other links may lead there.
    fn may_turn(&self, route: &Route) -> bool {
        let leads = |(link, ips): &(IfIndex, _)| {
            route.oif == Some(*link) || uplink::has_any(route.destination, ips)
        };
        let of_others = route.table == TableId::MAIN && route.protocol != RouteProtocol::SEAWAY;
        is_default(route) || (of_others && self.named.as_ref().is_some_and(leads))
    }

    /// Whether it is as wanted; nothing, if none is wanted for this address. The notices are
    /// those of the overlay's device alone.
    fn has_neighbour(&self, neighbour: &Neighbour) -> Option<bool> {
        let wanted = self.neighbours.get(&neighbour.address)?;
        Some(neighbour.permanent && neighbour.mac == Some(*wanted))
    }

    /// The same. A second remote for one address is as wrong as another one.
    fn has_entry(&self, entry: &FdbEntry) -> Option<bool> {
        let wanted = self.entries.get(&entry.mac)?;
        Some((entry.remote, entry.link) == *wanted)
    }

    /// Single links are their owners' business.
    fn concerns_forwarding(&self, switched: &Switched) -> bool {
        switched.link.is_none() && !switched.on && self.families.contains(&switched.family)
    }

    /// Somebody else's route to a peer's pods.
    fn in_the_way(&self, route: &Route) -> bool {
        route.protocol != RouteProtocol::SEAWAY && self.routes.contains(&route.destination)
    }
}

fn is_default(route: &Route) -> bool {
    route.destination.prefix() == 0 && route.table == TableId::MAIN
}

/// Those to this node's pods lead to a link, and are the plugin's.
fn was_ours(route: &Route) -> bool {
    let to_pod = route.gateway.is_none() && route.kind == RouteKind::Unicast;
    route.protocol == RouteProtocol::SEAWAY && (!to_pod || route.table != TableId::MAIN)
}

/// Tells of changes in one network namespace.
#[derive(Debug)]
pub struct Notices {
    monitor: Monitor,
    /// The overlay's device, whose neighbours are heard of.
    device: IfIndex,
}

/// No link has this number.
const NO_LINK: IfIndex = IfIndex(0);

impl Notices {
    /// Of the calling thread's network namespace, from now on.
    pub fn open() -> Result<Self, NetlinkError> {
        let all = Groups {
            links: true,
            addresses: true,
            routes: true,
            rules: true,
            neighbours: true,
            forwarding: true,
        };
        let device = NO_LINK;
        let monitor = Monitor::open(all)?;
        monitor.only_neighbours_of(Some(device))?;
        Ok(Self { monitor, device })
    }

    /// Has the kernel tell of the neighbours of the overlay's device, as it is now; tells
    /// whether it is another than before, so that something may have been missed. Call it
    /// from the network namespace in which this was opened.
    pub fn follow(&mut self, watched: &Watched) -> Result<bool, NetlinkError> {
        let name = watched.device.as_deref();
        // No such device is the business of whoever makes it.
        let index = name.and_then(|name| if_nametoindex(name).ok());
        let device = index.map_or(NO_LINK, IfIndex);
        if device == self.device {
            return Ok(false);
        }
        self.monitor.only_neighbours_of(Some(device))?;
        self.device = device;
        Ok(device != NO_LINK)
    }

    /// Takes what has come, without waiting; tells whether any of it concerns `watched`.
    pub fn take(&mut self, watched: &Watched) -> Result<bool, NetlinkError> {
        let mut any = false;
        while let Some(event) = self.monitor.wait(Duration::ZERO)? {
            any |= watched.concerns(&event);
        }
        Ok(any)
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

impl AsRawFd for Notices {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
