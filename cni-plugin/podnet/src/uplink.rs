//! Which link carries traffic to other nodes, and what fits through it.

use std::fmt;
use std::net::IpAddr;

use seaway_netlink::{
    Address, Family, IfIndex, Link, NetlinkError, Route, RouteFilter, RouteKind, Socket, TableId,
};

use crate::Desired;

mod named;
#[cfg(test)]
mod tests;

pub use named::Named;
pub(crate) use named::has_any;
#[cfg(test)]
pub(crate) use named::tests::named;

/// `lo` in every network namespace (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LOOPBACK: IfIndex = IfIndex(1);
/// Of an IPv6 route that says none (`IP6_RT_PRIO_USER`); IPv4 has 0.
const METRIC_V6: u32 = 1024;

/// What this node has, as the kernel lists it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// All links.
    pub(crate) links: Vec<Link>,
    /// All addresses, both families.
    pub(crate) addresses: Vec<Address>,
    /// The default routes of the main table, both families.
    pub(crate) default_routes: Vec<Route>,
}

/// The way to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The link of the first node address: where the overlay runs.
    pub link: Link,
    /// What fits through the links of all node addresses, in bytes.
    pub mtu: u32,
    /// How it was found.
    pub by: FoundBy,
}

/// How an uplink was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The operator named it.
    Name,
    /// It has the node's address.
    Address(IpAddr),
    /// The default route leads there.
    DefaultRoute,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("named by --uplink"),
            Self::Address(address) => write!(f, "has the node address {address}"),
            Self::DefaultRoute => f.write_str("the default route leads there"),
        }
    }
}

/// No uplink.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// The operator's word does not fit this node.
    #[error("find the uplink: --uplink {name}: there is no such link")]
    NoSuchLink {
        /// The name.
        name: String,
    },
    /// Nothing to go by.
    #[error(
        "find the uplink: no link has {}, and there is no default route; give --uplink or --node-ip",
        spell(addresses)
    )]
    NotFound {
        /// The node's addresses, if it has any.
        addresses: Vec<IpAddr>,
    },
    /// The kernel did not show what it has.
    #[error("find the uplink")]
    Unseen {
        /// Why.
        #[source]
        source: NetlinkError,
    },
}

/// Chooses the uplink: the link called `name` if given, else for each of `node_ips` the
/// link that has it, else the link of the default route.
///
/// An address on the loopback counts as on no link: it is how routed fabrics give a
/// node one address behind several links. Their default route has several next hops, of which
/// [`Route`] tells the first.
pub(crate) fn choose(
    name: Option<&str>,
    node_ips: &[IpAddr],
    seen: &Seen,
) -> Result<Uplink, UplinkError> {
    if let Some(name) = name {
        let link = seen.links.iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| UplinkError::NoSuchLink {
            name: name.to_owned(),
        })?;
        return Ok(uplink(link, link.mtu, FoundBy::Name));
    }
    let found: Vec<_> = if node_ips.is_empty() {
        let families = [Family::V4, Family::V6];
        let by_default = families.map(|family| seen.default_link(family));
        by_default.into_iter().flatten().map(by_route).collect()
    } else {
        node_ips
            .iter()
            .filter_map(|ip| seen.link_towards(*ip))
            .collect()
    };
    let mtu = found.iter().map(|(link, _)| link.mtu).min();
    match (found.first(), mtu) {
        (Some((link, by)), Some(mtu)) => Ok(uplink(link, mtu, *by)),
        _ => Err(UplinkError::NotFound {
            addresses: node_ips.to_vec(),
        }),
    }
}

impl Uplink {
    /// The uplink of the namespace of `socket`: the link that the operator has named, else
    /// the one with the node's address, else the one of the default route.
    pub fn find(socket: &mut Socket, want: &Desired) -> Result<Self, UplinkError> {
        choose(want.uplink.as_deref(), &want.node_ips, &look(socket)?)
    }
}

/// Reads what [`choose`] goes by.
pub(crate) fn look(socket: &mut Socket) -> Result<Seen, UplinkError> {
    see(socket).map_err(|source| UplinkError::Unseen { source })
}

fn see(socket: &mut Socket) -> Result<Seen, NetlinkError> {
    let mut seen = Seen {
        links: socket.links()?,
        ..Seen::default()
    };
    for family in [Family::V4, Family::V6] {
        match socket.addresses(family, None) {
            Ok(addresses) => seen.addresses.extend(addresses),
            // A kernel without this family has none of it.
            Err(error) if error.is_unsupported() => continue,
            Err(error) => return Err(error),
        }
        let routes = socket.routes(&RouteFilter {
            family,
            table: Some(TableId::MAIN),
            protocol: None,
            oif: None,
        })?;
        seen.default_routes
            .extend(routes.into_iter().filter(|r| r.destination.prefix() == 0));
    }
    Ok(seen)
}

impl Seen {
    fn link_towards(&self, ip: IpAddr) -> Option<(&Link, FoundBy)> {
        let holds = |a: &&Address| a.network.ip() == ip && a.ifindex != LOOPBACK;
        let holder = self.addresses.iter().find(holds);
        let holder = holder.and_then(|address| self.link(address.ifindex));
        holder
            .map(|link| (link, FoundBy::Address(ip)))
            .or_else(|| self.default_link(Family::of(ip)).map(by_route))
    }

    fn default_link(&self, family: Family) -> Option<&Link> {
        let of_family = self.default_routes.iter().filter(|route| {
            Family::of(route.destination.ip()) == family && route.kind == RouteKind::Unicast
        });
        let with_link = of_family.filter_map(|route| Some((metric(route), self.link(route.oif?)?)));
        with_link
            .min_by_key(|(metric, _)| *metric)
            .map(|(_, link)| link)
    }

    fn link(&self, index: IfIndex) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }
}

fn uplink(link: &Link, mtu: u32, by: FoundBy) -> Uplink {
    Uplink {
        link: link.clone(),
        mtu,
        by,
    }
}

fn by_route(link: &Link) -> (&Link, FoundBy) {
    (link, FoundBy::DefaultRoute)
}

fn metric(route: &Route) -> u32 {
    let default = if route.destination.is_ipv6() {
        METRIC_V6
    } else {
        0
    };
    route.metric.unwrap_or(default)
}

fn spell(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "a node address (status.addresses has no InternalIP)".to_owned();
    }
    let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("the node address {}", words.join(" or "))
}
