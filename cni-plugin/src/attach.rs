//! Carries out a plan in the kernel: three sends and a look, no dump, no move.

mod ready;

use std::os::fd::AsFd as _;

use seaway_netlink::{
    Address, Family, IfIndex, NetlinkError, Netns, Reason, Request, RouteFilter, Socket, TableId,
    VethPair,
};

use self::ready::await_ready;
use crate::error::Error;
use crate::plan::{Indexes, Plan, local_route};
use crate::sysctl;
use crate::undo::Undo;

/// Far longer than the kernel's own route takes to be there.
const EARLY_SECONDS: u32 = 10;

/// `lo` is the first interface of every namespace (`LOOPBACK_IFINDEX`,
/// include/net/flow.h).
pub(crate) const LOOPBACK: IfIndex = IfIndex(1);

/// Makes the pair, then the host's side, then the pod's. The one undo step is
/// the deletion of the pair: everything else hangs on it.
pub(crate) fn attach(plan: &Plan, netns: &Netns, undo: &mut Undo<'_>) -> Result<(), Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let mut pod =
        Socket::visit(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    let indexes = create(plan, netns, &mut host, &mut pod)?;
    let name = plan.identity.host_ifname.clone();
    undo.push(format!("delete {name}"), move || delete(&name).map(drop));
    furnish(plan, netns, &mut host, &mut pod, indexes)
}

/// Gives a pair that was attached without addresses what the plan says.
pub(crate) fn complete(plan: &Plan, netns: &Netns) -> Result<(), Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let mut pod =
        Socket::visit(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    let link = host
        .link_by_name(&plan.identity.host_ifname)
        .map_err(netlink("look at the host's interface"))?;
    let tried = plan.indexes().find(|indexes| indexes.host == link.index);
    let indexes = tried.ok_or_else(|| Error::LinkExists {
        ifname: link.name,
        place: "the host's network namespace".to_owned(),
    })?;
    furnish(plan, netns, &mut host, &mut pod, indexes)
}

fn furnish(
    plan: &Plan,
    netns: &Netns,
    host: &mut Socket,
    pod: &mut Socket,
    indexes: Indexes,
) -> Result<(), Error> {
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
        .map_err(|source| why_refused(pod, plan, indexes, source))?;
    await_ready(host, indexes)
}

/// Names the interface that has the pod's default route already, where that is
/// the reason.
fn why_refused(pod: &mut Socket, plan: &Plan, indexes: Indexes, source: NetlinkError) -> Error {
    let other = source.is_exists().then(|| default_link(pod, indexes));
    match other.flatten() {
        Some(other) => Error::DefaultRouteExists {
            ifname: plan.ifname.clone(),
            other,
        },
        None => netlink("set up the pod's interface")(source),
    }
}

fn default_link(pod: &mut Socket, indexes: Indexes) -> Option<String> {
    for family in [Family::V4, Family::V6] {
        let filter = RouteFilter {
            family,
            table: Some(TableId::MAIN),
            protocol: None,
            oif: None,
        };
        let routes = pod.routes(&filter).ok()?.into_iter();
        let defaults = routes.filter(|route| route.destination.prefix() == 0);
        let mut links = defaults.filter_map(|route| route.oif);
        if let Some(index) = links.find(|index| *index != indexes.pod) {
            return pod.link_by_index(index).ok().map(|link| link.name);
        }
    }
    None
}

/// Makes sure that the host's end, and with it the pod's, does not exist;
/// tells whether it did.
pub(crate) fn delete(host_ifname: &str) -> Result<bool, Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    host.remove_link(host_ifname)
        .map_err(netlink("delete the pod's interface"))
}

/// Whether there is such an interface on the host.
pub(crate) fn exists(host_ifname: &str) -> Result<bool, Error> {
    Ok(group_of(host_ifname)?.is_some())
}

/// The group of the interface, if there is one.
pub(crate) fn group_of(host_ifname: &str) -> Result<Option<u32>, Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    match host.link_by_name(host_ifname) {
        Ok(link) => Ok(Some(link.group)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(netlink("look at a pod's interface")(error)),
    }
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
            Err(error) => {
                if matches!(error.reason, Reason::Timeout(_)) {
                    // It may have been made all the same.
                    remove_if_ours(plan)?;
                }
                return Err(netlink("create the pod's interface")(error));
            }
        }
    }
    let source = failure.expect("there is more than no attempt");
    Err(netlink("create the pod's interface")(source))
}

/// The mark of our network on it tells it from somebody else's.
fn remove_if_ours(plan: &Plan) -> Result<(), Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let name = &plan.identity.host_ifname;
    match host.link_by_name(name) {
        Ok(link) if link.group == plan.group => delete(name).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(netlink("look for an interface that may have been made")(
            error,
        )),
    }
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
    let mut requests = vec![Request::link_set_up(LOOPBACK)];
    requests.extend(no_link_local(plan, indexes.pod));
    requests.push(Request::link_set_up(indexes.pod));
    let [_, shaper] = plan.shapers(indexes);
    requests.extend(shaper);
    let (v6, v4): (Vec<_>, Vec<_>) = plan
        .pod_addresses(indexes)
        .into_iter()
        .partition(|address| address.network.is_ipv6());
    requests.extend(v4.iter().map(Request::address_add));
    requests.extend(plan.pod_routes(indexes).iter().map(Request::route_add));
    let neighbours = plan.pod_neighbours(indexes);
    requests.extend(neighbours.map(|neighbour| Request::neighbour_replace(&neighbour)));
    requests.extend(addresses_v6(&v6));
    requests
}

/// The kernel checks a link-local address that it makes itself for duplicates in
/// a job of its own, which takes a second or two, and some milliseconds even
/// when it is told not to; ours are ready. By netlink, since a write to
/// `addr_gen_mode` in /proc/sys spins while somebody else holds the RTNL lock
/// (`addrconf_sysctl_addr_gen_mode`, net/ipv6/addrconf.c).
fn no_link_local(plan: &Plan, index: IfIndex) -> Option<Request<'static>> {
    plan.has_v6()
        .then(|| Request::link_set_no_link_local(index))
}

/// IPv6 addresses with their local routes, which the kernel makes in a deferred job
/// even without duplicate address detection (`addrconf_dad_work`,
/// net/ipv6/addrconf.c); until then an address receives nothing. Ours bridge
/// the time.
///
/// These requests come last: for each address a job of the kernel's wants the RTNL
/// lock, which is handed to it between two requests, and on a busy machine it
/// may be a while until the job is run and lets go.
fn addresses_v6(addresses: &[Address]) -> Vec<Request<'static>> {
    let routes = addresses.iter().filter_map(local_route);
    let early = routes.map(|route| Request::route_append_for(&route, EARLY_SECONDS));
    let add = addresses.iter().map(Request::address_add);
    add.chain(early).collect()
}

fn host_side(plan: &Plan, indexes: Indexes) -> Vec<Request<'static>> {
    let mut requests = Vec::from_iter(no_link_local(plan, indexes.host));
    // A pod that talks to itself through a Service must not be told of a "better" way. By
    // netlink, which costs less than to open, write and close a file of /proc/sys.
    requests.push(Request::link_set_up_without_redirects(indexes.host));
    // Exclusive: a route that exists belongs to a pod that lives.
    requests.extend(
        plan.host_routes(indexes)
            .map(|route| Request::route_add(&route)),
    );
    let link_local = plan.host_link_local_route(indexes);
    requests.extend(link_local.iter().map(Request::route_append));
    let neighbours = plan.host_neighbours(indexes);
    requests.extend(neighbours.map(|neighbour| Request::neighbour_replace(&neighbour)));
    let [shaper, _] = plan.shapers(indexes);
    requests.extend(shaper);
    requests.extend(
        plan.alias
            .as_ref()
            .map(|text| Request::link_set_alias(indexes.host, text)),
    );
    requests.extend(addresses_v6(plan.host_address(indexes).as_slice()));
    requests
}

pub(crate) fn netlink(step: &'static str) -> impl FnOnce(NetlinkError) -> Error {
    move |source| Error::Netlink { step, source }
}
