//! The rtnetlink socket and its verbs.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use netlink_packet_core::{NLM_F_ACK, NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::error::Reason;
use crate::wire::{Frame, Reply, Wire};
use crate::{
    Address, Family, IfIndex, Link, Neighbour, NetlinkError, Request, Route, RouteFilter, VethPair,
    netns,
};

/// Requests in one send. When all fail, the kernel queues as many answers, at about 1 KiB of
/// memory each on Linux 6.12, in a receive buffer of 208 KiB (`net.core.rmem_default`), and
/// drops what does not fit.
const AT_ONCE: usize = 64;

/// Group of links that are about to be deleted, whoever deletes them; a number
/// that nobody uses for anything else ("swGC").
const DOOMED: u32 = 0x7377_4743;

/// A blocking rtnetlink socket, bound to the namespace it was opened in.
#[derive(Debug)]
pub struct Socket {
    wire: Wire,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self {
            wire: Wire::open(NETLINK_ROUTE)?,
        })
    }

    /// Opens a socket in another network namespace, by way of a throw-away
    /// thread; the caller's threads stay where they are.
    pub fn open_in(netns: BorrowedFd<'_>) -> Result<Self, NetlinkError> {
        netns::in_namespace(netns, Self::open)
            .map_err(|error| NetlinkError::io("enter", "network namespace", &error))?
    }

    /// The same on the calling thread, for programs that have no other; see
    /// [`netns::visit`].
    pub fn visit(netns: BorrowedFd<'_>) -> Result<Self, NetlinkError> {
        netns::visit(netns, Self::open)
            .map_err(|error| NetlinkError::io("enter", "network namespace", &error))?
    }

    /// Sends the requests in order, many at once.
    ///
    /// # Errors
    /// The first that failed. The kernel may have carried out ones behind it all
    /// the same, so a caller that must have all or none has to undo.
    pub fn execute(&mut self, requests: &[Request<'_>]) -> Result<(), NetlinkError> {
        for some in requests.chunks(AT_ONCE) {
            let mut frames: Vec<Frame> = some.iter().map(|r| r.frame.clone()).collect();
            // Each acknowledgement would be a system call; without the last, nobody would know
            // that there is no failure.
            if let Some((_last, others)) = frames.split_last_mut() {
                for frame in others {
                    frame.flags &= !NLM_F_ACK;
                }
            }
            self.wire.carry_out(&frames)?;
        }
        Ok(())
    }

    /// All links. Costs 20 µs per link; prefer the two below.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request = Request::new(
            "link list",
            "all",
            0,
            &Message::GetLink(LinkMessage::default()),
        );
        self.list(&request, |message| match message {
            Message::NewLink(link) => Some(Link::parse(link)),
            _ => None,
        })
    }

    /// The link of this name, in the form that the kernel reports it.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] when there is none.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(name, message).map(Link::parse)
    }

    /// The link of this number.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] when there is none.
    pub fn link_by_index(&mut self, index: IfIndex) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index.0;
        self.link(&index.to_string(), message).map(Link::parse)
    }

    /// The kernel's answer to a question about one link.
    pub(crate) fn link(
        &mut self,
        object: &str,
        mut message: LinkMessage,
    ) -> Result<LinkMessage, NetlinkError> {
        // Statistics of hundreds of virtual functions are not wanted.
        message
            .attributes
            .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let request = Request::new("link show", object, 0, &Message::GetLink(message));
        let replies = self.wire.transact(std::slice::from_ref(&request.frame))?;
        for reply in &replies {
            if let Message::NewLink(link) = decode(&request.frame, reply)? {
                return Ok(link);
            }
        }
        Err(request.frame.error(Reason::Empty))
    }

    /// Makes a veth pair, both ends down.
    pub fn link_add_veth(&mut self, pair: &VethPair<'_>) -> Result<(), NetlinkError> {
        self.execute(&[Request::link_add_veth(pair)])
    }

    /// Deletes a link; for a veth, both ends.
    pub fn link_delete(&mut self, index: IfIndex) -> Result<(), NetlinkError> {
        self.execute(&[Request::link_delete(index)])
    }

    /// Makes sure that no link of this name exists; tells whether one did.
    pub fn remove_link(&mut self, name: &str) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::link_delete_by_name(name)]))
    }

    /// Makes sure that none of these links exists. The kernel waits for all
    /// CPUs once per deletion (20 ms), so they are gathered in a group and
    /// deleted together.
    pub fn remove_links(&mut self, indexes: &[IfIndex]) -> Result<(), NetlinkError> {
        match indexes {
            [] => return Ok(()),
            [one] => return removed(self.execute(&[Request::link_delete(*one)])).map(drop),
            _ => {}
        }
        let gather: Vec<_> = indexes
            .iter()
            .map(|index| Request::link_set_group(*index, DOOMED))
            .collect();
        // One that is gone already is fine; the others are gathered all the same, and what is
        // gathered goes, also when others could not be.
        let some = gather.chunks(AT_ONCE);
        let gathered: Vec<_> = some.map(|some| removed(self.execute(some))).collect();
        removed(self.execute(&[Request::link_delete_group(DOOMED)]))?;
        gathered
            .into_iter()
            .find(Result::is_err)
            .map_or(Ok(()), |failed| failed.map(drop))
    }

    /// Brings a link up.
    pub fn link_set_up(&mut self, index: IfIndex) -> Result<(), NetlinkError> {
        self.execute(&[Request::link_set_up(index)])
    }

    /// Addresses of one link, or of all.
    pub fn addresses(
        &mut self,
        family: Family,
        ifindex: Option<IfIndex>,
    ) -> Result<Vec<Address>, NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family.wire();
        // With strict checking the kernel filters by it, without it ignores it.
        message.header.index = ifindex.map_or(0, |index| index.0);
        let request = Request::new("address list", "all", 0, &Message::GetAddress(message));
        let mut addresses = self.list(&request, |message| match message {
            Message::NewAddress(address) => Address::parse(&address),
            _ => None,
        })?;
        addresses.retain(|address| ifindex.is_none_or(|index| index == address.ifindex));
        Ok(addresses)
    }

    /// Adds an address.
    pub fn address_add(&mut self, address: &Address) -> Result<(), NetlinkError> {
        self.execute(&[Request::address_add(address)])
    }

    /// Makes sure that the address is there; an equal one is success.
    pub fn ensure_address(&mut self, address: &Address) -> Result<(), NetlinkError> {
        self.execute(&[Request::address_replace(address)])
    }

    /// Makes sure that the address is not there; tells whether it was.
    pub fn remove_address(&mut self, address: &Address) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::address_delete(address)]))
    }

    /// Routes that match the filter, in the kernel's order.
    pub fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>, NetlinkError> {
        let request = Request::new("route list", "all", 0, &Message::GetRoute(filter.message()));
        let routes = self.list(&request, |message| match message {
            Message::NewRoute(route) => Route::parse(&route),
            _ => None,
        });
        match routes {
            Ok(routes) => Ok(routes
                .into_iter()
                .filter(|route| filter.matches(route))
                .collect()),
            // IPv4 reports a table that nobody has used yet as absent.
            Err(error) if filter.table.is_some() && error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The route that a packet to this address takes; to an address of this
    /// host it is [`RouteKind::Local`](crate::RouteKind::Local).
    ///
    /// # Errors
    /// `ENETUNREACH` when there is none.
    pub fn route_get(&mut self, destination: IpAddr) -> Result<Route, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = Family::of(destination).wire();
        message.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        message
            .attributes
            .push(RouteAttribute::Destination(destination.into()));
        let request = Request::new(
            "route get",
            destination.to_string(),
            0,
            &Message::GetRoute(message),
        );
        let replies = self.wire.transact(std::slice::from_ref(&request.frame))?;
        for reply in &replies {
            if let Message::NewRoute(route) = decode(&request.frame, reply)?
                && let Some(route) = Route::parse(&route)
            {
                return Ok(route);
            }
        }
        Err(request.frame.error(Reason::Empty))
    }

    /// Adds a route; fails when one to the same destination exists.
    pub fn route_add(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.execute(&[Request::route_add(route)])
    }

    /// Adds a route, or replaces the one to the same destination.
    pub fn route_replace(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.execute(&[Request::route_replace(route)])
    }

    /// Deletes a route.
    pub fn route_delete(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.execute(&[Request::route_delete(route)])
    }

    /// Makes sure that the route is not there; tells whether it was.
    pub fn remove_route(&mut self, route: &Route) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::route_delete(route)]))
    }

    /// Neighbour entries of one link, or of all.
    pub fn neighbours(
        &mut self,
        family: Family,
        ifindex: Option<IfIndex>,
    ) -> Result<Vec<Neighbour>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family.wire();
        let request = Request::new("neighbour list", "all", 0, &Message::GetNeighbour(message));
        let mut neighbours = self.list(&request, |message| match message {
            Message::NewNeighbour(neighbour) => Neighbour::parse(&neighbour),
            _ => None,
        })?;
        neighbours.retain(|entry| ifindex.is_none_or(|index| index == entry.ifindex));
        Ok(neighbours)
    }

    /// Adds or replaces a neighbour entry.
    pub fn neighbour_replace(&mut self, neighbour: &Neighbour) -> Result<(), NetlinkError> {
        self.execute(&[Request::neighbour_replace(neighbour)])
    }

    /// Makes sure that the entry is not there; tells whether it was.
    pub fn remove_neighbour(&mut self, neighbour: &Neighbour) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::neighbour_delete(neighbour)]))
    }

    pub(crate) fn list<T>(
        &mut self,
        request: &Request<'_>,
        pick: impl Fn(Message) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut objects = Vec::new();
        for reply in self.wire.dump(&request.frame)? {
            objects.extend(pick(decode(&request.frame, &reply)?));
        }
        Ok(objects)
    }
}

pub(crate) fn removed(outcome: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn decode(frame: &Frame, reply: &Reply) -> Result<Message, NetlinkError> {
    let mut header = NetlinkHeader::default();
    header.message_type = reply.kind;
    Message::deserialize(&header, &reply.payload)
        .map_err(|error| NetlinkError::malformed(frame.op, &frame.object, &error))
}
