//! Makes the kernel agree with [`Desired`]: idempotent, foreign objects untouched.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv4Network};
use seaway_firewall::{Change, Firewall, FirewallError, Masquerade};
use seaway_netlink::{
    Family, IfIndex, NetlinkError, Route, RouteFilter, RouteProtocol, Socket, TableId,
};

use crate::Desired;
use crate::sysctl::{self, IP_FORWARD};

/// A part of the pod network could not be programmed, or looked at.
#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    /// The kernel did not take, give or show a route, link or address.
    #[error("program the pod network's routes")]
    Routes {
        /// Which one, and why.
        #[source]
        source: NetlinkError,
    },
    /// Somebody else has a route to the same addresses; it stays.
    #[error("route {cidr} via {via}: somebody else has a route to it")]
    ForeignRoute {
        /// The peer's podCIDR.
        cidr: Ipv4Network,
        /// The peer's InternalIP.
        via: Ipv4Addr,
    },
    /// Packets of pods would not be passed on.
    #[error("switch on {IP_FORWARD}")]
    IpForward {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Pods would not reach the world outside.
    #[error("masquerade what leaves the cluster")]
    Masquerade {
        /// Why.
        #[source]
        source: FirewallError,
    },
    /// The MTU of pods cannot be told from any link.
    #[error("find the uplink: no link has the node's address {address:?}, and no route leads out")]
    NoUplink {
        /// The node's InternalIP, if it has one.
        address: Option<Ipv4Addr>,
    },
}

/// What a call of [`PodNetwork::apply`] did.
#[derive(Debug, Default)]
pub struct Changes {
    /// Routes added or corrected.
    pub replaced: usize,
    /// Routes to vanished nodes, removed.
    pub removed: usize,
    /// Whether forwarding had to be switched on, or the masquerade written.
    pub node: bool,
    /// Routes that could not be programmed; the others were.
    pub failed: Vec<PodNetworkError>,
}

/// The pod network of one network namespace.
#[derive(Debug)]
pub struct PodNetwork {
    socket: Socket,
    firewall: Firewall,
}

impl PodNetwork {
    /// That of the calling thread's network namespace; call the rest from the same one.
    pub fn open() -> Result<Self, PodNetworkError> {
        let socket = Socket::open().map_err(routes)?;
        let firewall = Firewall::open().map_err(masquerade)?;
        Ok(Self { socket, firewall })
    }

    /// Makes the kernel agree with `want`. To be repeated at will.
    ///
    /// # Errors
    /// What concerns all pods of the node. What concerns one peer is in
    /// [`Changes::failed`], and does not keep the rest from being done.
    pub fn apply(&mut self, want: &Desired) -> Result<Changes, PodNetworkError> {
        let forwarding = sysctl::ensure(IP_FORWARD, "1")
            .map_err(|source| PodNetworkError::IpForward { source })?;
        // Masquerade first: a pod must not be seen outside with an address that nobody can answer.
        let masqueraded = self
            .firewall
            .ensure_masquerade(&wanted_masquerade(want))
            .map_err(masquerade)?;
        let node = forwarding || masqueraded == Change::Changed;
        let mut changes = Changes {
            node,
            ..Changes::default()
        };
        self.apply_routes(&want.routes, &mut changes)?;
        Ok(changes)
    }

    /// Removes all that [`apply`](Self::apply) makes, whoever's run made it. IP
    /// forwarding stays on: whether others need it cannot be told.
    pub fn remove_all(&mut self) -> Result<Changes, PodNetworkError> {
        let mut changes = Changes::default();
        self.apply_routes(&BTreeMap::new(), &mut changes)?;
        changes.node = self.firewall.remove_all().map_err(masquerade)? == Change::Changed;
        Ok(changes)
    }

    /// The MTU, in bytes, of the link that carries traffic to other nodes: the one
    /// with the node's address, else the one of the default route.
    pub fn uplink_mtu(&mut self, want: &Desired) -> Result<u32, PodNetworkError> {
        let index = match self.link_of_address(want.node_ip)? {
            Some(index) => index,
            None => self.default_link()?.ok_or(PodNetworkError::NoUplink {
                address: want.node_ip,
            })?,
        };
        Ok(self.socket.link_by_index(index).map_err(routes)?.mtu)
    }

    fn link_of_address(
        &mut self,
        ip: Option<Ipv4Addr>,
    ) -> Result<Option<IfIndex>, PodNetworkError> {
        let Some(ip) = ip.map(IpAddr::V4) else {
            return Ok(None);
        };
        let addresses = self.socket.addresses(Family::V4, None).map_err(routes)?;
        Ok(addresses
            .iter()
            .find(|a| a.network.ip() == ip)
            .map(|a| a.ifindex))
    }

    fn default_link(&mut self) -> Result<Option<IfIndex>, PodNetworkError> {
        let filter = RouteFilter {
            family: Family::V4,
            table: Some(TableId::MAIN),
            protocol: None,
            oif: None,
        };
        let all = self.socket.routes(&filter).map_err(routes)?;
        let defaults = all
            .iter()
            .filter(|r| r.destination.prefix() == 0 && r.oif.is_some());
        Ok(defaults
            .min_by_key(|r| r.metric.unwrap_or(0))
            .and_then(|r| r.oif))
    }

    fn apply_routes(
        &mut self,
        want: &BTreeMap<Ipv4Network, Ipv4Addr>,
        changes: &mut Changes,
    ) -> Result<(), PodNetworkError> {
        let mut have: BTreeMap<IpNetwork, Vec<Route>> = BTreeMap::new();
        for route in self.own_routes()? {
            have.entry(route.destination).or_default().push(route);
        }
        for (&cidr, &via) in want {
            let wanted = peer_route(cidr, via);
            let existing = have.remove(&wanted.destination).unwrap_or_default();
            self.apply_route(cidr, via, existing, changes);
        }
        // Deletions last: what is still wanted is in place by now.
        for route in have.into_values().flatten() {
            self.remove_route(&route, changes);
        }
        Ok(())
    }

    /// One peer's route, given what we have to the same addresses already.
    fn apply_route(
        &mut self,
        cidr: Ipv4Network,
        via: Ipv4Addr,
        existing: Vec<Route>,
        changes: &mut Changes,
    ) {
        let wanted = peer_route(cidr, via);
        let (same_place, others): (Vec<_>, Vec<_>) = existing
            .into_iter()
            .partition(|r| r.metric.unwrap_or(0) == 0);
        let outcome = match same_place.first() {
            Some(have) if have.gateway == wanted.gateway => Ok(false),
            // In this place there is ours, so nobody else's can be replaced by mistake.
            Some(_) => self.socket.route_replace(&wanted).map(|()| true),
            None => self.socket.route_add(&wanted).map(|()| true),
        };
        match outcome {
            Ok(written) => changes.replaced += usize::from(written),
            Err(error) if error.is_exists() => {
                changes
                    .failed
                    .push(PodNetworkError::ForeignRoute { cidr, via });
            }
            Err(source) => changes.failed.push(PodNetworkError::Routes { source }),
        }
        for route in others {
            self.remove_route(&route, changes);
        }
    }

    fn remove_route(&mut self, route: &Route, changes: &mut Changes) {
        match self.socket.remove_route(route) {
            Ok(there) => changes.removed += usize::from(there),
            Err(source) => changes.failed.push(PodNetworkError::Routes { source }),
        }
    }

    /// The routes to peers. Those to this node's pods have our protocol as well,
    /// but lead to a link and not to a gateway.
    fn own_routes(&mut self) -> Result<Vec<Route>, PodNetworkError> {
        let filter = RouteFilter {
            table: Some(TableId::MAIN),
            ..RouteFilter::of(Family::V4, RouteProtocol::SEAWAY)
        };
        let mut own = self.socket.routes(&filter).map_err(routes)?;
        own.retain(|route| route.gateway.is_some());
        Ok(own)
    }
}

fn wanted_masquerade(want: &Desired) -> Masquerade {
    Masquerade {
        pod_cidrs: vec![IpNetwork::V4(want.pod_cidr)],
        non_masquerade_cidrs: want
            .cluster_cidrs
            .iter()
            .copied()
            .map(IpNetwork::V4)
            .collect(),
    }
}

fn peer_route(cidr: Ipv4Network, via: Ipv4Addr) -> Route {
    let mut route = Route::to(IpNetwork::V4(cidr));
    route.gateway = Some(IpAddr::V4(via));
    route
}

fn routes(source: NetlinkError) -> PodNetworkError {
    PodNetworkError::Routes { source }
}

fn masquerade(source: FirewallError) -> PodNetworkError {
    PodNetworkError::Masquerade { source }
}
