//! Carries out a plan in the kernel: three sends and a look, no dump, no move.

use std::os::fd::AsFd as _;

use nix::poll::poll;
use seaway_netlink::{IfIndex, NetlinkError, Netns, Request, Socket, VethPair};

use crate::error::Error;
use crate::plan::{Indexes, Plan};
use crate::sysctl;
use crate::undo::Undo;

/// `lo` is the first interface of every namespace (`LOOPBACK_IFINDEX`,
/// include/net/flow.h).
pub(crate) const LOOPBACK: IfIndex = IfIndex(1);

/// One second in all, the longest delay of the kernel's job.
const CARRIER_LOOKS: u32 = 500;
const CARRIER_PAUSE_MS: u8 = 2;

/// Makes the pair, then the host's side, then the pod's. The one undo step is
/// the deletion of the pair: everything else hangs on it.
pub(crate) fn attach(plan: &Plan, netns: &Netns, undo: &mut Undo<'_>) -> Result<(), Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let mut pod =
        Socket::open_in(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    let indexes = create(plan, netns, &mut host, &mut pod)?;
    let name = plan.identity.host_ifname.clone();
    undo.push(format!("delete {name}"), move || delete(&name).map(drop));
    sysctl::prepare_host_end(&plan.identity.host_ifname)?;
    host.execute(&host_side(plan, indexes))
        .map_err(netlink("set up the host's interface"))?;
    pod.execute(&pod_side(plan, indexes))
        .map_err(netlink("set up the pod's interface"))?;
    await_carrier(&mut host, indexes)
}

/// The end that is brought up first has no carrier then, and gets its queues
/// in a deferred job when the other end follows: a packet sent before is lost,
/// and with it a second of a new connection. In newer kernels, asking for the
/// link runs that job at once (`linkwatch_sync_dev` in `rtnl_getlink`; seen
/// with 6.18); in older ones it is waited for.
fn await_carrier(host: &mut Socket, indexes: Indexes) -> Result<(), Error> {
    for _ in 0..CARRIER_LOOKS {
        let link = host
            .link_by_index(indexes.host)
            .map_err(netlink("look at the host's interface"))?;
        if link.operational {
            return Ok(());
        }
        // Nothing to wait for but the time; the kernel's job takes as long.
        if let Err(errno) = poll(&mut [], CARRIER_PAUSE_MS) {
            return Err(netlink("wait for the carrier")(NetlinkError::refused(
                "link show",
                indexes.host.to_string(),
                errno as i32,
            )));
        }
    }
    // The deferred job runs within a second at the latest: TCP gets over it.
    eprintln!("No carrier yet on {}", indexes.host);
    Ok(())
}

/// Makes sure that the host's end, and with it the pod's, does not exist;
/// tells whether it did.
pub(crate) fn delete(host_ifname: &str) -> Result<bool, Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    host.remove_link(host_ifname)
        .map_err(netlink("delete the pod's interface"))
}

fn create(
    plan: &Plan,
    netns: &Netns,
    host: &mut Socket,
    pod: &mut Socket,
) -> Result<Indexes, Error> {
    let mut failure = None;
    for indexes in plan.indexes() {
        let (host_end, pod_end) = plan.ends(indexes);
        let pair = VethPair {
            host: host_end,
            peer: pod_end,
            peer_netns: netns.as_fd(),
            mtu: plan.mtu,
        };
        match host.link_add_veth(&pair) {
            Ok(()) => return Ok(indexes),
            Err(error) if error.is_busy() => failure = Some(error),
            Err(error) if error.is_exists() => match who_exists(plan, host, pod)? {
                Some(taken) => return Err(taken),
                // A taken number has the same errno as a taken name in some
                // kernels (`dev_new_index`, before 6.6).
                None => failure = Some(error),
            },
            Err(error) => return Err(netlink("create the pod's interface")(error)),
        }
    }
    let source = failure.expect("there is more than no attempt");
    Err(netlink("create the pod's interface")(source))
}

fn who_exists(plan: &Plan, host: &mut Socket, pod: &mut Socket) -> Result<Option<Error>, Error> {
    let places = [
        (pod, &plan.ifname, "the pod's network namespace"),
        (
            host,
            &plan.identity.host_ifname,
            "the host's network namespace",
        ),
    ];
    for (socket, ifname, place) in places {
        match socket.link_by_name(ifname) {
            Ok(_) => {
                let (ifname, place) = (ifname.clone(), place.to_owned());
                return Ok(Some(Error::LinkExists { ifname, place }));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(netlink("look at existing interfaces")(error)),
        }
    }
    Ok(None)
}

fn pod_side(plan: &Plan, indexes: Indexes) -> Vec<Request<'static>> {
    let [link_route, default_route] = plan.pod_routes(indexes);
    vec![
        Request::link_set_up(LOOPBACK),
        Request::link_set_up(indexes.pod),
        Request::address_add(&plan.pod_address(indexes)),
        Request::route_add(&link_route),
        Request::route_add(&default_route),
        Request::neighbour_replace(&plan.pod_neighbour(indexes)),
    ]
}

fn host_side(plan: &Plan, indexes: Indexes) -> Vec<Request<'static>> {
    let mut requests = vec![
        Request::link_set_up(indexes.host),
        // Exclusive: a route that exists belongs to a pod that lives.
        Request::route_add(&plan.host_route(indexes)),
        Request::neighbour_replace(&plan.host_neighbour(indexes)),
    ];
    requests.extend(
        plan.alias
            .as_ref()
            .map(|text| Request::link_set_alias(indexes.host, text)),
    );
    requests
}

pub(crate) fn netlink(step: &'static str) -> impl FnOnce(NetlinkError) -> Error {
    move |source| Error::Netlink { step, source }
}
