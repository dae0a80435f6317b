//! The addresses, routes and neighbour entries of the two ends.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::{
    Address, Family, IfIndex, MacAddr, Neighbour, Route, RouteKind, RouteProtocol, Scope, TableId,
};

use super::{Indexes, Plan, any};
use crate::config::{GATEWAY_V6, gateway};
use crate::result::Route as ResultRoute;

impl Plan {
    pub(crate) fn has_v6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// Of the pod's addresses.
    pub(crate) fn families(&self) -> Vec<Family> {
        self.addresses.iter().copied().map(Family::of).collect()
    }

    /// The pod's own addresses, each alone on its link, so nobody can have a
    /// duplicate.
    pub(crate) fn pod_addresses(&self, indexes: Indexes) -> Vec<Address> {
        let link_local = self
            .has_v6()
            .then(|| link_local(indexes.pod, from_mac(self.identity.pod_mac)));
        let own = self.addresses.iter().map(|address| Address {
            no_dad: address.is_ipv6(),
            ..Address::new(indexes.pod, IpNetwork::from(*address))
        });
        link_local.into_iter().chain(own).collect()
    }

    /// The gateway's address is really there, so that it can be asked. It is alone in
    /// its network: with a larger one, an interface that forwards has an anycast
    /// address besides (`addrconf_join_anycast`, net/ipv6/addrconf.c), and the
    /// kernel takes twice as long, 20 ms more, to delete it.
    pub(crate) fn host_address(&self, indexes: Indexes) -> Option<Address> {
        self.has_v6().then(|| Address {
            network: IpNetwork::from(IpAddr::from(GATEWAY_V6)),
            ..link_local(indexes.host, GATEWAY_V6)
        })
    }

    /// The gateway is on the link, and everything else behind it. Owned by
    /// "boot" as if the pod's administrator had made them.
    pub(crate) fn pod_routes(&self, indexes: Indexes) -> Vec<Route> {
        let ours = |mut route: Route, address: IpAddr| {
            route.oif = Some(indexes.pod);
            route.prefsrc = address.is_ipv4().then_some(address);
            route.protocol = RouteProtocol::BOOT;
            route
        };
        let mut routes = Vec::new();
        for &address in &self.addresses {
            let gateway = gateway(address);
            // IPv6 takes a link-local gateway as it is.
            if gateway.is_ipv4() {
                let mut link = Route::to(IpNetwork::from(gateway));
                link.scope = Scope::Link;
                routes.push(ours(link, address));
            }
            let mut default = Route::to(any(address));
            default.gateway = Some(gateway);
            routes.push(ours(default, address));
            let same = |r: &&ResultRoute| r.dst.is_ipv4() == address.is_ipv4();
            for more in self.more_routes.iter().filter(same) {
                let mut route = Route::to(more.dst);
                route.gateway = Some(gateway);
                routes.push(ours(route, address));
            }
        }
        routes
    }

    /// Nobody ever asks for the gateway's hardware address.
    pub(crate) fn pod_neighbours(&self, indexes: Indexes) -> impl Iterator<Item = Neighbour> {
        self.addresses.iter().map(move |address| {
            Neighbour::permanent(indexes.pod, gateway(*address), self.identity.host_mac)
        })
    }

    pub(crate) fn host_routes(&self, indexes: Indexes) -> impl Iterator<Item = Route> {
        self.addresses
            .iter()
            .map(move |address| route_to(*address, indexes.host))
    }

    /// To the pod's link-local address. Another pod may have been given the same
    /// MAC, and so has the same.
    pub(crate) fn host_link_local_route(&self, indexes: Indexes) -> Option<Route> {
        let address = from_mac(self.identity.pod_mac).into();
        self.has_v6().then(|| route_to(address, indexes.host))
    }

    pub(crate) fn host_neighbours(&self, indexes: Indexes) -> impl Iterator<Item = Neighbour> {
        let mac = self.identity.pod_mac;
        let link_local = self.has_v6().then(|| IpAddr::from(from_mac(mac)));
        let all = self.addresses.iter().copied().chain(link_local);
        all.map(move |address| Neighbour::permanent(indexes.host, address, mac))
    }
}

fn route_to(address: IpAddr, link: IfIndex) -> Route {
    let mut route = Route::to(IpNetwork::from(address));
    route.oif = Some(link);
    route.scope = Scope::Link;
    route
}

/// How the kernel comes to receive what is sent to an IPv6 address of its own.
pub(crate) fn local_route(address: &Address) -> Option<Route> {
    let ip = address.network.ip();
    ip.is_ipv6().then(|| Route {
        kind: RouteKind::Local,
        table: TableId::LOCAL,
        protocol: RouteProtocol::BOOT,
        ..route_to(ip, address.ifindex)
    })
}

fn link_local(ifindex: IfIndex, ip: Ipv6Addr) -> Address {
    let network = IpNetwork::new(ip.into(), 64).expect("64 bits fit");
    Address {
        scope: Scope::Link,
        no_dad: true,
        ..Address::new(ifindex, network)
    }
}

/// RFC 4291, appendix A: the modified EUI-64 of a hardware address.
fn from_mac(mac: MacAddr) -> Ipv6Addr {
    let mut bytes = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    bytes[8..11].copy_from_slice(&mac.0[..3]);
    bytes[13..].copy_from_slice(&mac.0[3..]);
    bytes[8] ^= 0x02;
    Ipv6Addr::from(bytes)
}
