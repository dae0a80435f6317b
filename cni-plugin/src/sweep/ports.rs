//! Ports of the host that lead to nobody, as a lost record leaves them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use seaway_firewall::{Firewall, FirewallError};
use seaway_netlink::{Family, RouteFilter, Socket, TableId};

use super::Veths;
use crate::attach::netlink;
use crate::error::Error;
use crate::hostports;
use crate::ipam::Store;
use crate::plan::is_host_ifname;

/// Addresses that ports lead to and that no record of any network holds, nor
/// leads a route to a pod's link there that can carry packets.
pub(crate) fn orphans(store: &Store, host: &mut Socket) -> Result<BTreeSet<IpAddr>, Error> {
    let mut firewall = match Firewall::open() {
        Err(FirewallError::Open { source }) if source.is_unsupported() => {
            return Ok(BTreeSet::new());
        }
        outcome => outcome.map_err(hostports::failed("look at the host's ports"))?,
    };
    let pods = firewall.host_port_traces();
    let mut pods = pods.map_err(hostports::failed("look at the host's ports"))?;
    if pods.is_empty() {
        return Ok(pods);
    }
    // After the ports: a record is there before its ports.
    for held in store.held_by_all()? {
        pods.remove(&held.address);
    }
    forget_routed(host, &mut pods)?;
    Ok(pods)
}

/// Removes the addresses to which a route leads over a pod's link that can carry packets.
pub(crate) fn forget_routed(host: &mut Socket, pods: &mut BTreeSet<IpAddr>) -> Result<(), Error> {
    for family in [Family::V4, Family::V6] {
        if pods.iter().any(|pod| Family::of(*pod) == family) {
            forget_routed_of(family, host, pods)?;
        }
    }
    Ok(())
}

fn forget_routed_of(
    family: Family,
    host: &mut Socket,
    pods: &mut BTreeSet<IpAddr>,
) -> Result<(), Error> {
    let veths = Veths::look(host)?;
    let filter = RouteFilter {
        family,
        table: Some(TableId::MAIN),
        protocol: None,
        oif: None,
    };
    let routes = host.routes(&filter);
    for route in routes.map_err(netlink("look at the host's routes"))? {
        let link = veths.0.values().find(|link| Some(link.index) == route.oif);
        let alive = link.filter(|link| is_host_ifname(&link.name));
        if alive.is_some_and(|link| super::Veth::of(link).is_alive()) {
            pods.retain(|pod| *pod != route.destination.ip());
        }
    }
    Ok(())
}
