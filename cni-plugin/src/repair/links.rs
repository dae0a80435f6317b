//! The host's side of live pods: link, its kernel settings, routes and neighbour
//! entries, made again where somebody has flushed or altered them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;

use seaway_netlink::{
    Address, Family, IfIndex, Link, MacAddr, Neighbour, NetlinkError, Netns, Route, RouteFilter,
    Socket, TableId,
};

use crate::attach::netlink;
use crate::error::Error;
use crate::ipam::{Attachments, Key, Record};
use crate::plan::{Identity, Indexes, Plan, group};
use crate::runtime::serve_loopback;
use crate::sweep::Veths;
use crate::sysctl::{HostEnds, Setting};
use crate::upkeep::told;

mod restore;

pub(super) use self::restore::restore;

/// What the host has.
pub(super) struct Host {
    veths: Veths,
    routes: Vec<Route>,
    neighbours: Vec<Neighbour>,
    addresses: Vec<Address>,
    ends: HostEnds,
}

/// What one live pod lacks of it.
#[derive(Default)]
struct Missing {
    link: Option<IfIndex>,
    settings: Vec<Setting>,
    address: Option<Address>,
    routes: Vec<Route>,
    link_local: Option<Route>,
    neighbours: Vec<Neighbour>,
    told: Vec<String>,
}

type Records = [(IpAddr, Option<Record>)];

impl Missing {
    fn is_nothing(&self) -> bool {
        let nothing = self.told.is_empty() && self.routes.is_empty() && self.neighbours.is_empty();
        let nothing = nothing && self.settings.is_empty() && self.link.is_none();
        nothing && self.address.is_none() && self.link_local.is_none()
    }
}

impl Host {
    /// Looks at what concerns the families that have records.
    pub(super) fn look<'a>(
        socket: &mut Socket,
        all: impl Iterator<Item = &'a Attachments>,
    ) -> Result<Self, Error> {
        let addresses = all.flat_map(Attachments::values).flatten();
        let families: BTreeSet<Family> = addresses.map(|(ip, _)| Family::of(*ip)).collect();
        let mut host = Self {
            veths: Veths::look(socket)?,
            routes: Vec::new(),
            neighbours: Vec::new(),
            addresses: Vec::new(),
            ends: HostEnds::look()?,
        };
        for family in families {
            host.look_at(socket, family)
                .map_err(netlink("look at the host's routes"))?;
        }
        Ok(host)
    }

    fn look_at(&mut self, socket: &mut Socket, family: Family) -> Result<(), NetlinkError> {
        let filter = RouteFilter {
            family,
            table: Some(TableId::MAIN),
            protocol: None,
            oif: None,
        };
        self.routes.extend(socket.routes(&filter)?);
        self.neighbours.extend(socket.neighbours(family, None)?);
        if family == Family::V6 {
            self.addresses.extend(socket.addresses(family, None)?);
        }
        Ok(())
    }

    pub(super) fn veths(&self) -> &Veths {
        &self.veths
    }

    /// Whether there is something to do or to tell.
    pub(super) fn lacks(&self, network: &str, key: &Key, records: &Records) -> bool {
        !self.missing(network, key, records).is_nothing()
    }

    fn missing(&self, network: &str, key: &Key, records: &Records) -> Missing {
        let identity = Identity::of(&key.container_id, &key.ifname);
        let Some(link) = self.live(network, &identity) else {
            return Missing::default();
        };
        let mac = self.mac(link.index, key, records);
        let ips = records.iter().map(|(ip, _)| *ip).collect();
        let plan = Plan::of_record(identity, mac.as_ref().ok().copied(), ips, link);
        let indexes = Indexes {
            host: link.index,
            pod: link.index,
        };
        let mut missing = Missing {
            link: (!link.up).then_some(link.index),
            ..Missing::default()
        };
        self.settings(&plan, records, &mut missing);
        for route in plan.host_routes(indexes) {
            self.route(route, &mut missing);
        }
        missing.address = plan.host_address(indexes).filter(|wanted| {
            let same = |a: &Address| a.ifindex == link.index && a.network == wanted.network;
            !self.addresses.iter().any(same)
        });
        match mac {
            Ok(_) => self.of_mac(&plan, indexes, &mut missing),
            Err(why) => missing
                .told
                .push(format!("container {}: {why}", key.container_id)),
        }
        missing
    }

    fn settings(&self, plan: &Plan, records: &Records, missing: &mut Missing) {
        let mut all = records.iter().filter_map(|(_, record)| record.as_ref());
        let from_loopback = all.any(|record| serve_loopback(&record.host_ports));
        let ifname = &plan.identity.host_ifname;
        match self.ends.wrong(ifname, plan.has_v6(), from_loopback) {
            Ok(settings) => missing.settings = settings,
            Err(error) => missing.told.push(told(&error)),
        }
    }

    fn of_mac(&self, plan: &Plan, indexes: Indexes, missing: &mut Missing) {
        let route = plan.host_link_local_route(indexes);
        missing.link_local = route.filter(|wanted| {
            let same = |r: &Route| r.destination == wanted.destination && r.oif == wanted.oif;
            !self.routes.iter().any(same)
        });
        let neighbours = plan.host_neighbours(indexes);
        missing.neighbours = neighbours
            .filter(|wanted| self.neighbour(wanted.ifindex, wanted.address).is_none())
            .collect();
    }

    /// Of this network, and not on its way out.
    fn live(&self, network: &str, identity: &Identity) -> Option<&Link> {
        let link = self.veths.link(&identity.host_ifname)?;
        let veth = self.veths.get(&identity.host_ifname)?;
        (link.group == group(network) && !veth.is_dead()).then_some(link)
    }

    fn route(&self, wanted: Route, missing: &mut Missing) {
        let there: Vec<&Route> = self
            .routes
            .iter()
            .filter(|route| route.destination == wanted.destination)
            .collect();
        if there.iter().any(|route| route.oif == wanted.oif) {
            return;
        }
        if there.is_empty() {
            missing.routes.push(wanted);
        } else {
            let why = "leads to another link, and is left as it is";
            missing
                .told
                .push(format!("the route to {} {why}", wanted.destination));
        }
    }

    fn neighbour(&self, index: IfIndex, address: IpAddr) -> Option<&Neighbour> {
        let mut all = self.neighbours.iter();
        all.find(|n| n.ifindex == index && n.address == address && n.permanent)
    }

    /// The pod's hardware address, which is not recorded: from an entry that is
    /// left, else from the pod itself.
    fn mac(&self, index: IfIndex, key: &Key, records: &Records) -> Result<MacAddr, String> {
        let entries = records.iter().map(|(ip, _)| self.neighbour(index, *ip));
        if let Some(mac) = entries.flatten().find_map(|entry| entry.mac) {
            return Ok(mac);
        }
        let record = records.iter().find_map(|(_, record)| record.as_ref());
        let record = record.ok_or("the record cannot be read")?;
        let why = "its network namespace is not where it was, so neighbour entries are missing";
        let netns = Netns::open(Path::new(&record.netns)).map_err(|_gone| why)?;
        if (netns.id().device, netns.id().inode) != record.netns_id {
            return Err(why.to_owned());
        }
        let link = Socket::visit(netns.as_fd()).and_then(|mut pod| pod.link_by_name(&key.ifname));
        let link = link.map_err(|error| format!("look at {} of the pod: {error}", key.ifname))?;
        link.mac.ok_or_else(|| format!("{} has no MAC", key.ifname))
    }
}
