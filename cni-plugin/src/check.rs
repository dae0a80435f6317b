//! `CHECK`: what ADD made is still there.

use std::net::IpAddr;
use std::os::fd::AsFd as _;

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, NetlinkError, Route, RouteFilter, Socket};

use crate::add::{key, open_netns};
use crate::args::Args;
use crate::attach::netlink;
use crate::config::{Config, GATEWAY};
use crate::error::Error;
use crate::ipam::Store;
use crate::plan::Identity;
use crate::result::CniResult;

/// Compares the kernel and the records with `prevResult`.
///
/// MAC and MTU may have been changed by plugins behind this one, so they are
/// not looked at.
pub(crate) fn check(config: &Config, args: &Args) -> Result<(), Error> {
    let (netns, sandbox) = open_netns(args)?;
    let prev = config.prev_result.as_ref().ok_or_else(|| Error::Config {
        key: "prevResult".to_owned(),
        why: "is required for CHECK".to_owned(),
    })?;
    let address = our_address(prev, args, &sandbox)?;
    check_record(config, args, address)?;
    let mut pod =
        Socket::open_in(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    check_pod(&mut pod, args, address)?;
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    check_host(&mut host, args, address)
}

fn our_address(prev: &CniResult, args: &Args, sandbox: &str) -> Result<IpNetwork, Error> {
    let place = prev
        .interfaces
        .iter()
        .position(|i| i.name == args.ifname && i.sandbox == sandbox)
        .ok_or_else(|| wrong(format!("prevResult has no interface {}", args.ifname)))?;
    let ip = prev
        .ips
        .iter()
        .find(|ip| ip.interface == Some(place) && ip.address.is_ipv4());
    let ip = ip.ok_or_else(|| wrong(format!("prevResult has no address of {}", args.ifname)))?;
    Ok(ip.address)
}

fn check_record(config: &Config, args: &Args, address: IpNetwork) -> Result<(), Error> {
    let held = Store::open(&config.network.data_dir, &config.network.name)?.find(&key(args))?;
    if held.map(IpAddr::V4) == Some(address.ip()) {
        return Ok(());
    }
    let (container_id, ifname) = (args.container_id.clone(), args.ifname.clone());
    Err(Error::NoRecord {
        container_id,
        ifname,
        wanted: address.ip(),
    })
}

fn check_pod(pod: &mut Socket, args: &Args, address: IpNetwork) -> Result<(), Error> {
    let list = netlink("look at the pod's interface");
    let link = present(pod.link_by_name(&args.ifname), &args.ifname)?;
    if !link.up {
        return Err(wrong(format!("interface {} is down", args.ifname)));
    }
    let addresses = pod.addresses(Family::V4, Some(link.index)).map_err(list)?;
    if !addresses.iter().any(|a| a.network == address) {
        return Err(wrong(format!("interface {} lost {address}", args.ifname)));
    }
    let filter = RouteFilter {
        family: Family::V4,
        table: None,
        protocol: None,
        oif: Some(link.index),
    };
    let routes = pod
        .routes(&filter)
        .map_err(netlink("look at the pod's routes"))?;
    let is_default = |route: &Route| {
        route.destination.prefix() == 0 && route.gateway == Some(IpAddr::V4(GATEWAY))
    };
    if !routes.iter().any(is_default) {
        return Err(wrong(format!("the default route via {GATEWAY} is gone")));
    }
    let neighbours = pod
        .neighbours(Family::V4, Some(link.index))
        .map_err(netlink("look at the pod's neighbours"))?;
    if !neighbours
        .iter()
        .any(|n| n.address == IpAddr::V4(GATEWAY) && n.permanent)
    {
        return Err(wrong(format!("the neighbour entry of {GATEWAY} is gone")));
    }
    Ok(())
}

fn check_host(host: &mut Socket, args: &Args, address: IpNetwork) -> Result<(), Error> {
    let ifname = Identity::of(&args.container_id, &args.ifname).host_ifname;
    let link = present(host.link_by_name(&ifname), &ifname)?;
    if !link.up {
        return Err(wrong(format!("interface {ifname} is down")));
    }
    let filter = RouteFilter {
        family: Family::V4,
        table: None,
        protocol: None,
        oif: Some(link.index),
    };
    let routes = host
        .routes(&filter)
        .map_err(netlink("look at the host's routes"))?;
    if !routes.iter().any(|route| route.destination == address) {
        return Err(wrong(format!("the host's route to {address} is gone")));
    }
    Ok(())
}

fn present<T>(outcome: Result<T, NetlinkError>, ifname: &str) -> Result<T, Error> {
    outcome.map_err(|error| {
        if error.is_not_found() {
            wrong(format!("interface {ifname} is gone"))
        } else {
            netlink("look at an interface")(error)
        }
    })
}

fn wrong(what: String) -> Error {
    Error::Check { what }
}
