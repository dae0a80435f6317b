//! Waits for what the kernel does in jobs of its own after it has said yes.

use std::net::IpAddr;

use nix::poll::poll;
use seaway_netlink::{NetlinkError, RouteKind, Socket};

use super::netlink;
use crate::error::Error;
use crate::plan::{Indexes, Plan};

/// One second in all, the longest delay of the kernel's jobs.
const LOOKS: u32 = 1000;
const PAUSE_MS: u8 = 1;

/// Waits until the first packet in either direction will not be lost.
pub(super) fn await_ready(
    plan: &Plan,
    host: &mut Socket,
    pod: &mut Socket,
    indexes: Indexes,
) -> Result<(), Error> {
    await_it("carrier", || carrier(host, indexes))?;
    match plan.addresses.iter().find(|ip| ip.is_ipv6()) {
        Some(address) => await_it("IPv6 address", || received(pod, *address)),
        None => Ok(()),
    }
}

/// The end that is brought up first has no carrier then, and gets its queues
/// in a deferred job when the other end follows: a packet sent before is lost,
/// and with it a second of a new connection. In newer kernels, asking for the
/// link runs that job at once (`linkwatch_sync_dev` in `rtnl_getlink`; seen
/// with 6.18); in older ones it is waited for.
fn carrier(host: &mut Socket, indexes: Indexes) -> Result<bool, Error> {
    let link = host
        .link_by_index(indexes.host)
        .map_err(netlink("look at the host's interface"))?;
    Ok(link.operational)
}

/// An IPv6 address receives nothing before its local route is there, which is
/// made in a deferred job even without duplicate address detection
/// (`addrconf_dad_work`, net/ipv6/addrconf.c).
fn received(pod: &mut Socket, address: IpAddr) -> Result<bool, Error> {
    match pod.route_get(address) {
        Ok(route) => Ok(route.kind == RouteKind::Local),
        Err(error) if error.errno() == Some(nix::libc::ENETUNREACH) => Ok(false),
        Err(error) => Err(netlink("look at the pod's IPv6 address")(error)),
    }
}

fn await_it(
    what: &'static str,
    mut is_there: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    for _ in 0..LOOKS {
        if is_there()? {
            return Ok(());
        }
        // Nothing to wait for but the time; the kernel's job takes as long.
        if let Err(errno) = poll(&mut [], PAUSE_MS) {
            let error = NetlinkError::refused("wait for the", what, errno as i32);
            return Err(netlink("wait for the kernel")(error));
        }
    }
    // TCP gets over it.
    eprintln!("No {what} yet");
    Ok(())
}
