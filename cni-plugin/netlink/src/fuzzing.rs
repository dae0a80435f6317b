//! What `fuzz/` calls. Compiled by `cargo xtask fuzz` only.

use netlink_packet_route::RouteNetlinkMessage;

use crate::wire::{Body, Frame, split};
use crate::{Address, FdbEntry, Link, Neighbour, Route, Rule, socket};

/// A datagram of the kernel: split into messages, and each object read.
pub fn reply(bytes: &[u8]) {
    let Ok(messages) = split(bytes) else { return };
    let frame = Frame {
        kind: 0,
        flags: 0,
        payload: Vec::new(),
        op: "fuzz",
        object: String::new(),
    };
    for message in messages {
        let Body::Object(reply) = message.body else {
            continue;
        };
        match socket::decode(&frame, &reply) {
            Ok(RouteNetlinkMessage::NewLink(link)) => drop(Link::parse(link)),
            Ok(RouteNetlinkMessage::NewAddress(address)) => drop(Address::parse(&address)),
            Ok(RouteNetlinkMessage::NewRoute(route)) => drop(Route::parse(&route)),
            Ok(RouteNetlinkMessage::NewNeighbour(entry)) => {
                drop(Neighbour::parse(&entry));
                std::hint::black_box(FdbEntry::parse(&entry));
            }
            Ok(RouteNetlinkMessage::NewRule(rule)) => drop(Rule::parse(&rule)),
            _ => {}
        }
    }
}
