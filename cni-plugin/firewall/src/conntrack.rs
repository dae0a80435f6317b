//! Forgetting flows of UDP and SCTP that lead to the wrong place.
//!
//! A UDP flow has no end: as long as its client sends, the kernel's connection
//! tracking keeps on translating it to where it was first sent (plugins#123).
//! A client of SCTP comes back from the same port, and its new association is
//! to the kernel the old flow, whatever state that is in. A new connection of
//! TCP is a new flow.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_ACK;
use seaway_netlink::wire::{Frame, Reply, Wire};
use seaway_netlink::{Family, NetlinkError};

use crate::attributes::Attributes;
use crate::hostports::{HostPort, octets};
use crate::message::number;
use crate::set::find;

/// `NFNL_SUBSYS_CTNETLINK` and its messages,
/// include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const SUBSYSTEM: u16 = 1;
const GET: u16 = 1;
const DELETE: u16 = 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const DESTINATION_PORT: u16 = 3;
/// UDP and SCTP, `IPPROTO_*`.
const LASTING: [u8; 2] = [17, 132];

/// Whether a flow of this protocol goes on to where its port does not lead any more.
pub(crate) fn lasts(protocol: u8) -> bool {
    LASTING.contains(&protocol)
}

/// A flow as its first packet wanted it, and who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) protocol: u8,
    /// Where the client sends to, in network byte order.
    pub(crate) destination: Vec<u8>,
    pub(crate) port: u16,
    /// Where it was sent to.
    pub(crate) answers: Vec<u8>,
    /// What names the flow to the kernel.
    name: Vec<(u16, Vec<u8>)>,
}

/// Forgets the flows of one family that `wrong` picks. Those of others, of which a node may
/// have a million, take no memory.
pub(crate) fn forget(
    wire: &mut Wire,
    family: Family,
    wrong: impl Fn(&Flow) -> bool,
) -> Result<usize, NetlinkError> {
    let all = Attributes::after_header(number(family), 0);
    let list = message(GET, 0, all, "flow list", family);
    let doomed = wire.dump_some(&list, |reply| Flow::parse(&reply, family).filter(&wrong))?;
    for flow in &doomed {
        let mut attributes = Attributes::after_header(number(family), 0);
        for (kind, value) in &flow.name {
            attributes = attributes.bytes(*kind, value);
        }
        let delete = message(DELETE, NLM_F_ACK, attributes, "flow delete", family);
        match wire.transact(std::slice::from_ref(&delete)) {
            // It may have ended by itself.
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(doomed.len())
}

fn message(
    kind: u16,
    flags: u16,
    attributes: Attributes,
    op: &'static str,
    family: Family,
) -> Frame {
    Frame {
        kind: SUBSYSTEM << 8 | kind,
        flags,
        payload: attributes.finish(),
        op,
        object: format!("of UDP and SCTP, {}", crate::ruleset::keyword(family)),
    }
}

impl Flow {
    /// `None`: of another protocol, or not understood.
    pub(crate) fn parse(reply: &Reply, family: Family) -> Option<Self> {
        let body = reply.payload.get(4..)?;
        let original = find(body, TUPLE_ORIGINAL)?;
        let protocol = find(&original, TUPLE_PROTOCOL)?;
        let [number] = find(&protocol, PROTOCOL_NUMBER)?[..] else {
            return None;
        };
        if !lasts(number) {
            return None;
        }
        let (source, destination) = match family {
            Family::V4 => (1, 2),
            Family::V6 => (3, 4),
        };
        let port = find(&protocol, DESTINATION_PORT)?;
        let reply_ip = find(&find(body, TUPLE_REPLY)?, TUPLE_IP)?;
        // NLA_F_NESTED marks a list of attributes.
        let mut name = vec![(TUPLE_ORIGINAL | 1 << 15, original.clone())];
        for kind in [ID, ZONE] {
            name.extend(find(body, kind).map(|value| (kind, value)));
        }
        Some(Self {
            protocol: number,
            destination: find(&find(&original, TUPLE_IP)?, destination)?,
            port: u16::from_be_bytes(*port.first_chunk()?),
            answers: find(&reply_ip, source)?,
            name,
        })
    }

    /// Goes to the port at one of these addresses of the host, but is not
    /// answered by the port's pod.
    pub(crate) fn misses(&self, port: &HostPort, hosts: &BTreeSet<IpAddr>) -> bool {
        let to_port = (self.protocol, self.port) == (port.protocol.number(), port.host_port);
        let to_host = || hosts.iter().any(|ip| octets(*ip) == self.destination);
        to_port && self.answers != octets(port.pod) && to_host()
    }

    /// Was translated to the pod.
    pub(crate) fn leads_to(&self, pod: IpAddr) -> bool {
        let pod = octets(pod);
        self.answers == pod && self.destination != pod
    }
}
