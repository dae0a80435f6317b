//! Routes: to peers' pods, of probes, and what answers for addresses that no pod has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{
    Family, IfIndex, NetlinkError, Route, RouteFilter, RouteKind, RouteProtocol, Socket, TableId,
};

use super::{Changes, PodNetworkError, of_both};
use crate::uplink::Named;
use crate::{Desired, PROBE_TABLE, Path, Peer, PeerCidr, Probe, Skip, SkipReason};

/// Of routes that answer for addresses that no pod has. Any route that somebody else has to
/// the same range is better.
const LAST_METRIC: u32 = 83_000;
/// Of a route for which none is given: IPv4, and IPv6 (`IP6_RT_PRIO_USER`).
const METRICS: [u32; 2] = [0, 1024];

/// The links that routes choose among.
#[derive(Debug, Default)]
pub(super) struct Links<'a> {
    /// The overlay's device.
    pub(super) device: Option<IfIndex>,
    /// The one that the operator has named.
    pub(super) named: Option<&'a Named>,
}

/// What the main table should hold.
///
/// A direct path whose next hop is on no link falls back to the overlay, or is skipped.
pub(super) fn wanted(
    socket: &mut Socket,
    want: &Desired,
    links: &Links<'_>,
    changes: &mut Changes,
) -> Vec<Route> {
    let mut routes = Vec::new();
    for cidr in &want.pod_cidrs {
        routes.push(unreachable(*cidr, TableId::MAIN));
    }
    for probe in want.probes.iter().filter(|probe| !probe.routed) {
        routes.extend(way_of_answers(socket, want, probe, links));
    }
    for (name, peer) in &want.peers {
        for to in &peer.cidrs {
            routes.extend(next_hop(peer, to, links.device));
            match wanted_route(socket, peer, to, links) {
                Ok(route) => routes.push(route),
                Err(reason) => changes.skipped.push(Skip {
                    node: name.clone(),
                    reason,
                }),
            }
        }
    }
    routes
}

/// Where no overlay leads to a peer, the answers to its probes would be lost, and each would
/// find that the other does not answer.
fn way_of_answers(
    socket: &mut Socket,
    want: &Desired,
    probe: &Probe,
    links: &Links<'_>,
) -> Option<Route> {
    let mut route = Route::to(probe.target.into());
    route.gateway = Some(probe.via);
    route.oif = Some(link_towards(socket, probe.via, links)?);
    route.prefsrc = want.overlay.as_ref().map(|_| probe.source);
    Some(route)
}

/// IPv6 takes a next hop only if the best route to it leads by the same device, and without
/// this one that would be the route to the range around it, which may be direct.
fn next_hop(peer: &Peer, to: &PeerCidr, device: Option<IfIndex>) -> Option<Route> {
    let wanted = to.reserved.is_ipv6() && peer.vtep.is_some() && device.is_some();
    let mut route = Route::to(to.reserved.into());
    (route.oif, route.prefsrc) = (device, to.source);
    wanted.then_some(route)
}

fn wanted_route(
    socket: &mut Socket,
    peer: &Peer,
    to: &PeerCidr,
    links: &Links<'_>,
) -> Result<Route, SkipReason> {
    let mut route = Route::to(to.cidr);
    route.prefsrc = to.source;
    if let Path::Direct { via } = to.path {
        if let Some(link) = link_towards(socket, via, links) {
            (route.gateway, route.oif) = (Some(via), Some(link));
            return Ok(route);
        }
        if peer.vtep.is_none() || links.device.is_none() {
            return Err(SkipReason::NotOnLink { value: via });
        }
    }
    (route.gateway, route.oif, route.onlink) = (Some(to.reserved), links.device, true);
    Ok(route)
}

/// What the table of probes should hold. Without the last one a probe that no route is
/// for would take the way of pods, and be answered.
pub(super) fn wanted_of_probes(
    socket: &mut Socket,
    want: &Desired,
    links: &Links<'_>,
) -> Vec<Route> {
    let mut routes = Vec::new();
    for family in [Family::V4, Family::V6] {
        let mut probes = want.probes.iter().filter(|p| p.family == family).peekable();
        if probes.peek().is_some() {
            routes.push(unreachable(everything(family), PROBE_TABLE));
        }
        for probe in probes {
            let mut route = Route::to(probe.target.into());
            route.table = PROBE_TABLE;
            route.gateway = Some(probe.via);
            route.oif = link_towards(socket, probe.via, links);
            routes.extend(route.oif.is_some().then_some(route));
        }
    }
    routes
}

fn unreachable(destination: IpNetwork, table: TableId) -> Route {
    let mut route = Route::to(destination);
    route.kind = RouteKind::Unreachable;
    route.table = table;
    route.metric = Some(LAST_METRIC);
    route
}

fn everything(family: Family) -> IpNetwork {
    let zero = match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    };
    IpNetwork::new(zero, 0).expect("no prefix is shorter")
}

/// The link that has `via` as a neighbour. If several have, the one that is named.
fn link_towards(socket: &mut Socket, via: IpAddr, links: &Links<'_>) -> Option<IfIndex> {
    let named = links.named.and_then(|named| named.beside(via));
    if named.is_some() {
        return named;
    }
    // No route, or no such family: nothing leads there.
    let route = socket.route_get(via).ok()?;
    let neighbour = route.kind == RouteKind::Unicast && route.gateway.is_none();
    route
        .oif
        .filter(|link| neighbour && Some(*link) != links.device)
}

/// Our routes in one table. Those to this node's pods have our protocol as well, but lead
/// to another link and not to a gateway.
pub(super) fn own(
    socket: &mut Socket,
    table: TableId,
    device: Option<IfIndex>,
) -> Result<Vec<Route>, PodNetworkError> {
    let mut own = of_both(|family| {
        socket.routes(&RouteFilter {
            table: Some(table),
            ..RouteFilter::of(family, RouteProtocol::SEAWAY)
        })
    })?;
    own.retain(|route| {
        let to_device = device.is_some() && route.oif == device;
        to_device || route.gateway.is_some() || route.kind == RouteKind::Unreachable
    });
    Ok(own)
}

/// The addresses of this node's pods, as the plugin has made routes to them.
pub(super) fn to_pods(
    socket: &mut Socket,
    device: Option<IfIndex>,
) -> Result<Vec<IpNetwork>, PodNetworkError> {
    let routes = of_both(|family| {
        socket.routes(&RouteFilter {
            table: Some(TableId::MAIN),
            ..RouteFilter::of(family, RouteProtocol::SEAWAY)
        })
    })?;
    let is_host =
        |network: &IpNetwork| network.prefix() == if network.is_ipv4() { 32 } else { 128 };
    let pods = routes
        .into_iter()
        .filter(|route| route.gateway.is_none() && route.kind == RouteKind::Unicast)
        .filter(|route| route.oif.is_some() && route.oif != device);
    Ok(pods
        .map(|route| route.destination)
        .filter(is_host)
        .collect())
}

/// Adds and corrects; returns what is there and not wanted.
pub(super) fn ensure(
    socket: &mut Socket,
    want: &[Route],
    have: Vec<Route>,
    changes: &mut Changes,
) -> Vec<Route> {
    let mut places: BTreeMap<(IpNetwork, u32), Route> = BTreeMap::new();
    let mut stale = Vec::new();
    for route in have {
        // IPv6 has several next hops as several routes.
        stale.extend(places.insert(place(&route), route));
    }
    for wanted in want {
        match places.remove(&place(wanted)) {
            Some(have) if same(&have, wanted) => {}
            // In this place there is ours, so nobody else's can be replaced by mistake.
            Some(_) => changes.wrote_route(wanted, socket.route_replace(wanted)),
            None => changes.wrote_route(wanted, socket.route_add(wanted)),
        }
    }
    stale.extend(places.into_values());
    stale
}

/// The kernel has one route for each.
fn place(route: &Route) -> (IpNetwork, u32) {
    let [v4, v6] = METRICS;
    let default = if route.destination.is_ipv4() { v4 } else { v6 };
    (route.destination, route.metric.unwrap_or(default))
}

fn same(have: &Route, want: &Route) -> bool {
    let hop = |route: &Route| (route.kind, route.gateway, route.prefsrc);
    // An unreachable route of IPv6 is reported to lead to the loopback.
    hop(have) == hop(want) && (want.oif.is_none() || have.oif == want.oif)
}

/// Removes routes that are not wanted.
pub(super) fn remove(socket: &mut Socket, stale: &[Route], changes: &mut Changes) {
    for route in stale {
        let outcome: Result<bool, NetlinkError> = socket.remove_route(route);
        changes.removed(outcome);
    }
}
