//! `CHECK`: what ADD made is still there.

use std::net::IpAddr;
use std::os::fd::AsFd as _;

use seaway_netlink::{
    Family, IfIndex, Link, NetlinkError, Route, RouteFilter, Socket, TokenBucket,
};

use crate::add::{key, open_netns};
use crate::args::Args;
use crate::attach::netlink;
use crate::config::{Config, gateway};
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Pool, Store};
use crate::plan::Identity;
use crate::result::CniResult;

/// Compares the kernel and the records with `prevResult`.
///
/// MAC and MTU may have been changed by plugins behind this one, and addresses
/// may have been added, so only what ADD made is looked at: an address of ours
/// has a record. The MAC must be the one that the chain has reported.
pub(crate) fn check(
    config: &Config,
    args: &Args,
    delegate: Option<Delegate<'_>>,
) -> Result<(), Error> {
    let (netns, sandbox) = open_netns(args)?;
    let prev = config.prev_result.as_ref().ok_or_else(|| Error::Config {
        key: "prevResult".to_owned(),
        why: "is required for CHECK".to_owned(),
    })?;
    let reported = Reported::of(prev, args, &sandbox)?;
    let ours = check_records(config, args, &reported.addresses)?;
    let mut pod =
        Socket::visit(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    let link = check_pod(&mut pod, args, &reported, &ours)?;
    check_shaper(&link, config.runtime.egress)?;
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let link = check_host(&mut host, args, &ours)?;
    check_shaper(&link, config.runtime.ingress)?;
    hostports::check(config, &ours)?;
    delegate.map_or(Ok(()), |delegate| delegate.tell("CHECK"))
}

/// What the chain has told the runtime about our interface.
struct Reported {
    mac: String,
    addresses: Vec<IpAddr>,
}

impl Reported {
    /// Results before 0.3.0 name no interface.
    fn of(prev: &CniResult, args: &Args, sandbox: &str) -> Result<Self, Error> {
        let place = prev
            .interfaces
            .iter()
            .position(|i| i.name == args.ifname && i.sandbox == sandbox);
        if place.is_none() && !prev.interfaces.is_empty() {
            return Err(wrong(format!(
                "prevResult has no interface {}",
                args.ifname
            )));
        }
        let ips = prev.ips.iter().filter(|ip| ip.interface == place);
        let addresses: Vec<IpAddr> = ips.map(|ip| ip.address.ip()).collect();
        if addresses.is_empty() {
            return Err(wrong(format!(
                "prevResult has no address of {}",
                args.ifname
            )));
        }
        let mac = place.map_or("", |place| prev.interfaces[place].mac.as_str());
        Ok(Self {
            mac: mac.to_ascii_lowercase(),
            addresses,
        })
    }
}

/// The addresses that are recorded, each of which must have been reported.
fn check_records(config: &Config, args: &Args, reported: &[IpAddr]) -> Result<Vec<IpAddr>, Error> {
    let store = Store::open(&config.network.data_dir, &config.network.name)?;
    let held = store.find(&key(args))?;
    let families = config.pools.iter().map(Pool::is_ipv4);
    for v4 in families {
        let wanted = reported.iter().find(|ip| ip.is_ipv4() == v4);
        let wanted = *wanted.ok_or_else(|| {
            let family = if v4 { "IPv4" } else { "IPv6" };
            wrong(format!(
                "prevResult has no {family} address of {}",
                args.ifname
            ))
        })?;
        if !held
            .iter()
            .any(|ip| reported.contains(ip) && ip.is_ipv4() == v4)
        {
            let (container_id, ifname) = (args.container_id.clone(), args.ifname.clone());
            return Err(Error::NoRecord {
                container_id,
                ifname,
                wanted,
            });
        }
    }
    let ours: Vec<IpAddr> = held
        .into_iter()
        .filter(|ip| reported.contains(ip))
        .collect();
    if ours.is_empty() {
        return Err(wrong(String::from("no address of prevResult is recorded")));
    }
    Ok(ours)
}

fn check_pod(
    pod: &mut Socket,
    args: &Args,
    reported: &Reported,
    ours: &[IpAddr],
) -> Result<Link, Error> {
    let link = present(pod.link_by_name(&args.ifname), &args.ifname)?;
    if !link.up {
        return Err(wrong(format!("interface {} is down", args.ifname)));
    }
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    if !reported.mac.is_empty() && reported.mac != mac {
        let (ifname, wanted) = (&args.ifname, &reported.mac);
        return Err(wrong(format!(
            "interface {ifname} has the MAC {mac}, not {wanted}"
        )));
    }
    for &address in ours {
        check_pod_address(pod, args, link.index, address)?;
    }
    Ok(link)
}

/// Only that there is one: its numbers are anybody's to change.
fn check_shaper(link: &Link, wanted: Option<TokenBucket>) -> Result<(), Error> {
    if wanted.is_some() && link.qdisc.as_deref() != Some(TokenBucket::KIND) {
        let name = &link.name;
        return Err(wrong(format!("the bandwidth limit of {name} is gone")));
    }
    Ok(())
}

fn check_pod_address(
    pod: &mut Socket,
    args: &Args,
    index: IfIndex,
    address: IpAddr,
) -> Result<(), Error> {
    let (family, gateway) = (Family::of(address), gateway(address));
    let addresses = pod
        .addresses(family, Some(index))
        .map_err(netlink("look at the pod's interface"))?;
    if !addresses.iter().any(|a| a.network.ip() == address) {
        return Err(wrong(format!("interface {} lost {address}", args.ifname)));
    }
    let is_default =
        |route: &Route| route.destination.prefix() == 0 && route.gateway == Some(gateway);
    let routes = routes(pod, family, index, "look at the pod's routes")?;
    if !routes.iter().any(is_default) {
        return Err(wrong(format!("the default route via {gateway} is gone")));
    }
    // IPv6 takes a link-local gateway without a route to it.
    let on_link = |route: &Route| route.destination == gateway.into();
    if gateway.is_ipv4() && !routes.iter().any(on_link) {
        return Err(wrong(format!("the route to {gateway} is gone")));
    }
    let neighbours = pod
        .neighbours(family, Some(index))
        .map_err(netlink("look at the pod's neighbours"))?;
    let is_gateway = |n: &seaway_netlink::Neighbour| n.address == gateway && n.permanent;
    if !neighbours.iter().any(is_gateway) {
        return Err(wrong(format!("the neighbour entry of {gateway} is gone")));
    }
    Ok(())
}

fn check_host(host: &mut Socket, args: &Args, ours: &[IpAddr]) -> Result<Link, Error> {
    let ifname = Identity::of(&args.container_id, &args.ifname).host_ifname;
    let link = present(host.link_by_name(&ifname), &ifname)?;
    if !link.up {
        return Err(wrong(format!("interface {ifname} is down")));
    }
    for &address in ours {
        let family = Family::of(address);
        let routes = routes(host, family, link.index, "look at the host's routes")?;
        let network = address.into();
        if !routes.iter().any(|route| route.destination == network) {
            return Err(wrong(format!("the host's route to {address} is gone")));
        }
        let neighbours = host
            .neighbours(family, Some(link.index))
            .map_err(netlink("look at the host's neighbours"))?;
        if !neighbours
            .iter()
            .any(|n| n.address == address && n.permanent)
        {
            return Err(wrong(format!("the neighbour entry of {address} is gone")));
        }
    }
    Ok(link)
}

fn routes(
    socket: &mut Socket,
    family: Family,
    index: IfIndex,
    step: &'static str,
) -> Result<Vec<Route>, Error> {
    let filter = RouteFilter {
        family,
        table: None,
        protocol: None,
        oif: Some(index),
    };
    socket.routes(&filter).map_err(netlink(step))
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
