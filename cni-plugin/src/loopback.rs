//! The `loopback` plugin: brings `lo` up.
//!
//! containerd calls it for every pod before the pod's own network, and fails
//! the pod without it. It keeps no state and takes its configuration as it is.

use std::io::Write;
use std::os::fd::AsFd as _;

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, Netns, Request, Socket};
use serde_json::Value;

use crate::add::{open_netns, write_out};
use crate::args::{Args, Verb};
use crate::attach::{LOOPBACK, netlink};
use crate::config;
use crate::error::Error;
use crate::result::{CniResult, Interface, Ip};

const IFNAME: &str = "lo";

pub(crate) fn loopback(
    verb: Verb,
    args: &Args,
    stdin: &[u8],
    stdout: &mut dyn Write,
) -> Result<(), Error> {
    let (object, version, _name) = config::parse(stdin)?;
    match verb {
        Verb::Add => {
            let prev = object.get("prevResult").filter(|value| !value.is_null());
            let result = add(args, prev)?;
            write_out(stdout, &result.render(version))
        }
        Verb::Del => del(args),
        Verb::Check => check(args),
    }
}

/// An earlier plugin's result is passed on unchanged.
fn add(args: &Args, prev: Option<&Value>) -> Result<CniResult, Error> {
    let (netns, sandbox) = open_netns(args)?;
    let mut socket = open(&netns)?;
    socket
        .link_set_up(LOOPBACK)
        .map_err(netlink("bring lo up"))?;
    match prev {
        Some(prev) => CniResult::parse(prev),
        None => result(&mut socket, sandbox),
    }
}

fn result(socket: &mut Socket, sandbox: String) -> Result<CniResult, Error> {
    let read = || netlink("read the addresses of lo");
    let link = socket.link_by_index(LOOPBACK).map_err(read())?;
    let mut networks: Vec<IpNetwork> = Vec::new();
    for family in [Family::V4, Family::V6] {
        let addresses = socket.addresses(family, Some(LOOPBACK)).map_err(read())?;
        networks.extend(addresses.iter().map(|address| address.network));
    }
    let ip = |address| Ip {
        version: None,
        interface: Some(0),
        address,
        gateway: None,
    };
    Ok(CniResult {
        interfaces: vec![Interface {
            name: IFNAME.to_owned(),
            mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            mtu: Some(link.mtu),
            sandbox,
            ..Interface::default()
        }],
        ips: networks.into_iter().map(ip).collect(),
        ..CniResult::default()
    })
}

/// A namespace that is gone needs nothing, and one that cannot be opened is
/// gone: DEL is called until it succeeds.
fn del(args: &Args) -> Result<(), Error> {
    if args.netns.is_none() {
        return Ok(());
    }
    match open_netns(args) {
        Ok((netns, _)) => {
            let down = Request::link_set_down(LOOPBACK);
            open(&netns)?
                .execute(&[down])
                .map_err(netlink("take lo down"))
        }
        Err(Error::Netns { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn check(args: &Args) -> Result<(), Error> {
    let (netns, _) = open_netns(args)?;
    let lo = open(&netns)?
        .link_by_index(LOOPBACK)
        .map_err(netlink("look at lo"))?;
    if lo.up {
        Ok(())
    } else {
        Err(Error::Check {
            what: format!("interface {IFNAME} is down"),
        })
    }
}

fn open(netns: &Netns) -> Result<Socket, Error> {
    Socket::visit(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))
}
