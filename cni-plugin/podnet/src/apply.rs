//! Makes the kernel agree with [`Desired`]: idempotent, foreign objects untouched.
//!
//! What is referred to is written first: device, its addresses, where peers are, then
//! routes. What is wanted no more goes last, in the opposite order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_firewall::{Change, Firewall, FirewallError, Masquerade};
use seaway_netlink::{
    Family, IfIndex, NetlinkError, Route, RouteFilter, RouteProtocol, Socket, TableId,
};

use crate::uplink::{Named, Uplink, UplinkError};
use crate::{Desired, Overlay, PROBE_TABLE, VxlanSettings, sysctl};

mod device;
mod entries;
mod error;
mod foreign;
mod routes;
mod rules;

pub use error::{Changes, PodNetworkError};
use routes::Links;

/// Routes that the kernel has from router advertisements (`RTPROT_RA`).
const ADVERTISED: RouteProtocol = RouteProtocol(9);
/// Of pods on a node that reaches nobody, bytes: what Ethernet has.
const ALONE_MTU: u32 = 1500;

/// The pod network of one network namespace.
#[derive(Debug)]
pub struct PodNetwork {
    socket: Socket,
    firewall: Firewall,
}

impl PodNetwork {
    /// That of the calling thread's network namespace; call the rest from the same one.
    pub fn open() -> Result<Self, PodNetworkError> {
        let socket = Socket::open().map_err(PodNetworkError::netlink)?;
        let firewall = Firewall::open().map_err(masquerade)?;
        Ok(Self { socket, firewall })
    }

    /// Makes the kernel agree with `want`. To be repeated at will.
    ///
    /// # Errors
    /// What concerns all pods of the node. What concerns one peer is in
    /// [`Changes::failed`], and does not keep the rest from being done.
    pub fn apply(&mut self, want: &Desired) -> Result<Changes, PodNetworkError> {
        let mut changes = Changes::default();
        self.apply_node(want, &mut changes)?;
        let mut stale = entries::Stale::default();
        let socket = &mut self.socket;
        let mut links = Links {
            device: None,
            named: want.named.as_ref(),
        };
        if let Some(overlay) = &want.overlay {
            let uplink = Uplink::find(socket, want).map_err(PodNetworkError::Uplink)?;
            let index = device::ensure(socket, want, overlay, &uplink, &mut changes)?;
            links.device = Some(index);
            stale = entries::ensure(socket, want, overlay, index, &mut changes)?;
        }
        self.apply_routes(want, &links, &mut changes)?;
        stale.remove(&mut self.socket, &mut changes);
        if want.overlay.is_none() {
            let name = VxlanSettings::default().device;
            device::remove(&mut self.socket, &name, &mut changes)?;
        }
        Ok(changes)
    }

    /// Removes all that [`apply`](Self::apply) makes, whoever's run made it. Forwarding and
    /// the other switches stay as they are: whether others need them cannot be told.
    pub fn remove_all(&mut self) -> Result<Changes, PodNetworkError> {
        let mut changes = Changes::default();
        let socket = &mut self.socket;
        rules::apply(socket, &BTreeSet::new(), &mut changes)?;
        for table in [PROBE_TABLE, TableId::MAIN] {
            let own = routes::own(socket, table, None)?;
            routes::remove(socket, &own, &mut changes);
        }
        // Its addresses and entries go with it.
        device::remove(socket, &VxlanSettings::default().device, &mut changes)?;
        changes.node |= self.firewall.remove_all().map_err(masquerade)? == Change::Changed;
        Ok(changes)
    }

    /// The podCIDRs that an earlier run has made routes to, and the next hop of each. Who
    /// restarts can tell by it which paths were proven.
    pub fn routes_in_use(&mut self) -> Result<BTreeMap<IpNetwork, IpAddr>, PodNetworkError> {
        let own = routes::own(&mut self.socket, TableId::MAIN, None)?;
        let routes = own.into_iter();
        Ok(routes
            .filter_map(|route| Some((route.destination, route.gateway?)))
            .collect())
    }

    /// The link that carries traffic to other nodes.
    pub fn uplink(&mut self, want: &Desired) -> Result<Uplink, PodNetworkError> {
        Uplink::find(&mut self.socket, want).map_err(PodNetworkError::Uplink)
    }

    /// The link called `name` and what it leads to; nothing, if there is no such link.
    pub fn named(&mut self, name: &str) -> Result<Option<Named>, PodNetworkError> {
        Named::find(&mut self.socket, name).map_err(PodNetworkError::netlink)
    }

    /// The MTU, in bytes, that pod interfaces get.
    pub fn pod_mtu(&mut self, want: &Desired) -> Result<u32, PodNetworkError> {
        if let Some(mtu) = want.mtu {
            return Ok(mtu);
        }
        let overhead = want.overlay.as_ref().map_or(0, Overlay::overhead);
        match Uplink::find(&mut self.socket, want) {
            Ok(uplink) => Ok(uplink.mtu.saturating_sub(overhead)),
            Err(UplinkError::NotFound { .. }) if want.is_alone() => Ok(ALONE_MTU),
            Err(error) => Err(PodNetworkError::Uplink(error)),
        }
    }

    /// Forwarding, and masquerade. The latter comes before any route: a pod must not be
    /// seen outside with an address that nobody can answer.
    fn apply_node(&mut self, want: &Desired, changes: &mut Changes) -> Result<(), PodNetworkError> {
        let advertised = self.advertised_links(want)?;
        let forwarding = sysctl::forwarding(want, &advertised)?;
        let mut pod_cidrs = want.pod_cidrs.clone();
        pod_cidrs.extend(former_pods(&mut self.socket, want)?);
        let wanted = Masquerade {
            pod_cidrs,
            non_masquerade_cidrs: want.non_masquerade.clone(),
        };
        let masqueraded = self
            .firewall
            .ensure_masquerade(&wanted)
            .map_err(masquerade)?;
        changes.node |= forwarding || masqueraded == Change::Changed;
        Ok(())
    }

    /// The uplink, and every link that a default route from a router's word leads to.
    fn advertised_links(&mut self, want: &Desired) -> Result<Vec<String>, PodNetworkError> {
        if !want.has_pods_of(Family::V6) {
            return Ok(Vec::new());
        }
        let filter = RouteFilter::of(Family::V6, ADVERTISED);
        let routes = self
            .socket
            .routes(&filter)
            .map_err(PodNetworkError::netlink)?;
        let mut links: BTreeSet<IfIndex> = routes.iter().filter_map(|route| route.oif).collect();
        // In direct mode a node may have no uplink that can be told, and need none.
        let uplink = Uplink::find(&mut self.socket, want).ok();
        links.extend(uplink.map(|uplink| uplink.link.index));
        let mut names = Vec::new();
        for index in links {
            let link = self
                .socket
                .link_by_index(index)
                .map_err(PodNetworkError::netlink)?;
            names.push(link.name);
        }
        Ok(names)
    }

    fn apply_routes(
        &mut self,
        want: &Desired,
        links: &Links<'_>,
        changes: &mut Changes,
    ) -> Result<(), PodNetworkError> {
        let (socket, device) = (&mut self.socket, links.device);
        let wanted = routes::wanted_of_probes(socket, want, links);
        changes.node |= loosen_source_check(socket, &wanted, links)?;
        let have = routes::own(socket, PROBE_TABLE, device)?;
        let of_probes = routes::ensure(socket, &wanted, have, changes);
        // The rule after the table that it leads to, and before that is emptied.
        rules::apply(socket, &rules::wanted(want), changes)?;
        routes::remove(socket, &of_probes, changes);

        let wanted = routes::wanted(socket, want, links, changes);
        let have = routes::own(socket, TableId::MAIN, device)?;
        let stale = routes::ensure(socket, &wanted, have, changes);
        routes::remove(socket, &stale, changes);
        foreign::find(socket, want, changes)
    }
}

/// Pods with addresses of a podCIDR that the node had before: they keep them, and nobody
/// outside can answer these either. Another network's pods are left alone.
fn former_pods(socket: &mut Socket, want: &Desired) -> Result<Vec<IpNetwork>, PodNetworkError> {
    let is_in = |cidrs: &[IpNetwork], address| cidrs.iter().any(|cidr| cidr.contains(address));
    // Our own device has such routes as well, to the peers' ends of it.
    let device = socket.link_by_name(&VxlanSettings::default().device);
    let mut pods = routes::to_pods(socket, device.ok().map(|link| link.index))?;
    pods.retain(|pod| is_in(&want.non_masquerade, pod.ip()) && !is_in(&want.pod_cidrs, pod.ip()));
    Ok(pods)
}

/// Each end of a path decides alone, so packets of a peer's pods may come by the link of the
/// direct path while those to them leave by the overlay, and the other way round. By the link
/// that the operator has named there may come what routes would lead to by another one.
fn loosen_source_check(
    socket: &mut Socket,
    of_probes: &[Route],
    links: &Links<'_>,
) -> Result<bool, PodNetworkError> {
    // IPv6 has no such check.
    let paths = of_probes.iter().filter(|r| r.destination.is_ipv4());
    let mut loose: BTreeSet<IfIndex> = paths.filter_map(|route| route.oif).collect();
    if !loose.is_empty() {
        loose.extend(links.device);
    }
    loose.extend(links.named.map(|named| named.link));
    let mut wrote = false;
    for index in loose {
        let link = socket
            .link_by_index(index)
            .map_err(PodNetworkError::netlink)?;
        wrote |= sysctl::loose_source_check(&link.name)?;
    }
    Ok(wrote)
}

/// Lists objects of both families; a kernel without one of them has none of it.
fn of_both<T>(
    mut list: impl FnMut(Family) -> Result<Vec<T>, NetlinkError>,
) -> Result<Vec<T>, PodNetworkError> {
    let mut all = list(Family::V4).map_err(PodNetworkError::netlink)?;
    match list(Family::V6) {
        Ok(more) => all.extend(more),
        Err(error) if error.is_unsupported() => {}
        Err(source) => return Err(PodNetworkError::netlink(source)),
    }
    Ok(all)
}

fn masquerade(source: FirewallError) -> PodNetworkError {
    PodNetworkError::Masquerade { source }
}
