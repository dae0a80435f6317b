//! Notifications of changes, whoever made them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::socket::decode;
use crate::wire::{Body, Frame, Wire};
use crate::{Address, FdbEntry, IfIndex, Link, Neighbour, NetlinkError, Route, Rule};

mod filter;
mod forwarding;

pub use forwarding::Switched;

/// Which kinds of objects to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Groups {
    /// Interfaces.
    pub links: bool,
    /// Addresses, both families.
    pub addresses: bool,
    /// Routes, both families.
    pub routes: bool,
    /// Policy routing rules, both families.
    pub rules: bool,
    /// Neighbours of both families and entries of forwarding databases. A busy node has
    /// thousands a second: see [`Monitor::only_neighbours_of`].
    pub neighbours: bool,
    /// Whether packets are passed on, both families.
    pub forwarding: bool,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link appeared or changed.
    Link(Link),
    /// A link went away.
    LinkRemoved(Link),
    /// An address appeared or changed.
    Address(Address),
    /// An address went away.
    AddressRemoved(Address),
    /// A route appeared or changed.
    Route(Route),
    /// A route went away.
    RouteRemoved(Route),
    /// A rule appeared.
    Rule(Rule),
    /// A rule went away.
    RuleRemoved(Rule),
    /// A neighbour appeared or changed.
    Neighbour(Neighbour),
    /// A neighbour went away.
    NeighbourRemoved(Neighbour),
    /// An entry of a VXLAN device's forwarding database appeared or changed.
    Fdb(FdbEntry),
    /// An entry of a VXLAN device's forwarding database went away.
    FdbRemoved(FdbEntry),
    /// Forwarding was switched on or off.
    Switched(Switched),
    /// Changes were lost, because they came faster than they were taken:
    /// everything that was followed has to be read again.
    Overrun,
}

/// A socket of its own that receives changes.
///
/// As an iterator it blocks and never ends of itself; [`Monitor::wait`] has a
/// deadline, for threads that must be stopped.
#[derive(Debug)]
pub struct Monitor {
    wire: Wire,
    ready: std::collections::VecDeque<Event>,
}

impl Groups {
    /// `RTNLGRP_*`, include/uapi/linux/rtnetlink.h.
    fn numbers(self) -> impl Iterator<Item = u32> {
        let links: &[u32] = if self.links { &[1] } else { &[] };
        let addresses: &[u32] = if self.addresses { &[5, 9] } else { &[] };
        let routes: &[u32] = if self.routes { &[7, 11] } else { &[] };
        let rules: &[u32] = if self.rules { &[8, 19] } else { &[] };
        let neighbours: &[u32] = if self.neighbours { &[3] } else { &[] };
        let forwarding: &[u32] = if self.forwarding { &[24, 25] } else { &[] };
        let first = links.iter().chain(addresses).chain(routes);
        first
            .chain(rules)
            .chain(neighbours)
            .chain(forwarding)
            .copied()
    }
}

impl Monitor {
    /// Starts to listen in the calling thread's network namespace. What
    /// happens after the return is not missed.
    pub fn open(groups: Groups) -> Result<Self, NetlinkError> {
        let mut wire = Wire::open(NETLINK_ROUTE)?;
        wire.make_room();
        for number in groups.numbers() {
            wire.socket_mut()
                .add_membership(number)
                .map_err(|error| NetlinkError::io("monitor", format!("group {number}"), &error))?;
        }
        Ok(Self {
            wire,
            ready: std::collections::VecDeque::new(),
        })
    }

    /// From now on the kernel keeps back what concerns neighbours and forwarding databases
    /// of other links, so that their traffic does not wake whoever waits. `None`: of all links.
    pub fn only_neighbours_of(&self, link: Option<IfIndex>) -> Result<(), NetlinkError> {
        filter::attach(self.wire.as_fd(), link)
            .map_err(|error| NetlinkError::io("monitor", String::from("socket filter"), &error))
    }

    /// Waits for the next change; `None` when none came in time.
    pub fn wait(&mut self, deadline: Duration) -> Result<Option<Event>, NetlinkError> {
        let timeout = PollTimeout::try_from(deadline).unwrap_or(PollTimeout::MAX);
        self.next_event(timeout)
    }

    fn next_event(&mut self, timeout: PollTimeout) -> Result<Option<Event>, NetlinkError> {
        while self.ready.is_empty() {
            let mut fds = [PollFd::new(self.wire.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) => return Ok(None),
                Ok(_) => self.fill()?,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(NetlinkError::refused("monitor", "", errno as i32)),
            }
        }
        Ok(self.ready.pop_front())
    }

    fn fill(&mut self) -> Result<(), NetlinkError> {
        let (op, object) = ("monitor", String::from("changes"));
        let context = Frame {
            kind: 0,
            flags: 0,
            payload: Vec::new(),
            op,
            object,
        };
        let messages = match self.wire.receive(&context) {
            Ok(messages) => messages,
            Err(error) if error.errno() == Some(libc::ENOBUFS) => {
                self.ready.push_back(Event::Overrun);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for message in messages {
            match message.body {
                // The message crate does not know these.
                Body::Object(reply) if reply.kind == forwarding::NEW_CONF => {
                    let switched = Switched::parse(&reply.payload);
                    self.ready.extend(switched.map(Event::Switched));
                }
                Body::Object(reply) if reply.kind == forwarding::DELETE_CONF => {}
                Body::Object(reply) => self.ready.extend(event(decode(&context, &reply)?)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Iterator for Monitor {
    type Item = Result<Event, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event(PollTimeout::NONE).transpose()
    }
}

fn event(message: Message) -> Option<Event> {
    Some(match message {
        Message::NewLink(link) => Event::Link(Link::parse(link)),
        Message::DelLink(link) => Event::LinkRemoved(Link::parse(link)),
        Message::NewAddress(address) => Event::Address(Address::parse(&address)?),
        Message::DelAddress(address) => Event::AddressRemoved(Address::parse(&address)?),
        Message::NewRoute(route) => Event::Route(Route::parse(&route)?),
        Message::DelRoute(route) => Event::RouteRemoved(Route::parse(&route)?),
        Message::NewRule(rule) => Event::Rule(Rule::parse(&rule)?),
        Message::DelRule(rule) => Event::RuleRemoved(Rule::parse(&rule)?),
        Message::NewNeighbour(entry) => match FdbEntry::parse(&entry) {
            Some(entry) => Event::Fdb(entry),
            None => Event::Neighbour(Neighbour::parse(&entry)?),
        },
        Message::DelNeighbour(entry) => match FdbEntry::parse(&entry) {
            Some(entry) => Event::FdbRemoved(entry),
            None => Event::NeighbourRemoved(Neighbour::parse(&entry)?),
        },
        _ => return None,
    })
}
