//! Whatever comes from a socket, nothing panics and nothing is read twice.

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
use proptest::prelude::*;

use super::frame::HEADER;
use super::*;
use crate::{Address, FdbEntry, Link, Neighbour, Route, Rule, Vxlan};
use netlink_packet_route::RouteNetlinkMessage;

/// Types of replies that we read: links, addresses, routes, neighbours, rules.
const KINDS: [u16; 5] = [16, 20, 24, 28, 32];

fn read(kind: u16, payload: Vec<u8>) {
    let frame = Frame {
        kind: 0,
        flags: 0,
        payload: Vec::new(),
        op: "test",
        object: String::new(),
    };
    match crate::socket::decode(&frame, &Reply { kind, payload }) {
        Ok(RouteNetlinkMessage::NewLink(link)) => {
            assert_eq!(Vxlan::of(&link), Vxlan::of(&link.clone()));
            drop(Link::parse(link));
        }
        Ok(RouteNetlinkMessage::NewAddress(address)) => drop(Address::parse(&address)),
        Ok(RouteNetlinkMessage::NewRoute(route)) => drop(Route::parse(&route)),
        Ok(RouteNetlinkMessage::NewNeighbour(entry)) => {
            let link = entry.header.ifindex;
            assert!(FdbEntry::parse(&entry).is_none_or(|read| read.ifindex.0 == link));
            assert!(Neighbour::parse(&entry).is_none_or(|read| read.ifindex.0 == link));
        }
        Ok(RouteNetlinkMessage::NewRule(rule)) => {
            let family = rule.header.family;
            assert!(Rule::parse(&rule).is_none_or(|read| read.family.wire() == family));
        }
        _ => {}
    }
}

/// Attributes with plausible headers and arbitrary values.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let one = (0..70u16, prop::collection::vec(any::<u8>(), 0..40), 0..3u16);
    prop::collection::vec(one, 0..6).prop_map(|list| {
        let mut bytes = Vec::new();
        for (kind, value, lie) in list {
            let length = u16::try_from(value.len()).unwrap() + 4 + lie;
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(&value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_datagram_is_split_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(split(&bytes));
    }

    #[test]
    fn any_error_message_is_read_or_refused(
        flags in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..60),
        done in any::<bool>(),
    ) {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(if done { NLMSG_DONE } else { NLMSG_ERROR }.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        drop(split(&bytes));
    }

    #[test]
    fn any_object_is_read_or_refused(
        kind in prop::sample::select(KINDS.to_vec()),
        header in prop::collection::vec(any::<u8>(), 0..20),
        attributes in attributes(),
    ) {
        let mut payload = header;
        payload.extend(attributes);
        read(kind, payload);
    }
}
