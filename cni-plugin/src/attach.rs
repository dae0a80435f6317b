//! Carries out a plan in the kernel: three sends and a look, no dump, no move.

mod ready;

use std::os::fd::AsFd as _;

use seaway_netlink::{IfIndex, NetlinkError, Netns, Request, Socket, VethPair};

use self::ready::await_ready;
use crate::error::Error;
use crate::plan::{Indexes, Plan};
use crate::sysctl;
use crate::undo::Undo;

/// `lo` is the first interface of every namespace (`LOOPBACK_IFINDEX`,
/// include/net/flow.h).
pub(crate) const LOOPBACK: IfIndex = IfIndex(1);

/// Makes the pair, then the host's side, then the pod's. The one undo step is
/// the deletion of the pair: everything else hangs on it.
pub(crate) fn attach(plan: &Plan, netns: &Netns, undo: &mut Undo<'_>) -> Result<(), Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let mut pod =
        Socket::open_in(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    let indexes = create(plan, netns, &mut host, &mut pod)?;
    let name = plan.identity.host_ifname.clone();
    undo.push(format!("delete {name}"), move || delete(&name).map(drop));
    sysctl::prepare_host_end(
        &plan.identity.host_ifname,
        plan.has_v6(),
        plan.from_loopback,
    )?;
    if plan.has_v6() {
        sysctl::prepare_pod_end(netns, &plan.ifname)?;
    }
    host.execute(&host_side(plan, indexes))
        .map_err(netlink("set up the host's interface"))?;
    pod.execute(&pod_side(plan, indexes))
        .map_err(netlink("set up the pod's interface"))?;
    await_ready(plan, &mut host, &mut pod, indexes)
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
            group: plan.group,
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
            // Ours, and the pod's namespace has no other end: it stems from an
            // ADD whose namespace is going away, and whose record is lost.
            Ok(link) if *ifname == plan.identity.host_ifname && link.group == plan.group => {
                socket
                    .remove_link(ifname)
                    .map_err(netlink("delete a stale interface"))?;
            }
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
    let mut requests = vec![
        Request::link_set_up(LOOPBACK),
        Request::link_set_up(indexes.pod),
    ];
    let [_, shaper] = plan.shapers(indexes);
    requests.extend(shaper);
    let addresses = plan.pod_addresses(indexes);
    requests.extend(addresses.iter().map(Request::address_add));
    requests.extend(plan.pod_routes(indexes).iter().map(Request::route_add));
    let neighbours = plan.pod_neighbours(indexes);
    requests.extend(neighbours.map(|neighbour| Request::neighbour_replace(&neighbour)));
    requests
}

fn host_side(plan: &Plan, indexes: Indexes) -> Vec<Request<'static>> {
    let mut requests = vec![Request::link_set_up(indexes.host)];
    requests.extend(plan.host_address(indexes).map(|a| Request::address_add(&a)));
    // Exclusive: a route that exists belongs to a pod that lives.
    requests.extend(
        plan.host_routes(indexes)
            .map(|route| Request::route_add(&route)),
    );
    let neighbours = plan.host_neighbours(indexes);
    requests.extend(neighbours.map(|neighbour| Request::neighbour_replace(&neighbour)));
    let [shaper, _] = plan.shapers(indexes);
    requests.extend(shaper);
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
