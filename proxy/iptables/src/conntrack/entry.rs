//! One entry of the kernel's table, as far as it matters.
//!
//! The form is that of include/uapi/linux/netfilter/nfnetlink_conntrack.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::NlasIterator;
use seaway_proxy_core::desired::Protocol;

#[cfg(test)]
mod tests;

/// `CTA_*`, of an entry.
pub(super) const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// `CTA_TUPLE_*`
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
/// `CTA_IP_*`
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const IP_V6_SRC: u16 = 3;
const IP_V6_DST: u16 = 4;
/// `CTA_PROTO_*`
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
/// `IPPROTO_*`
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// `NLA_F_NESTED`, include/uapi/linux/netlink.h.
const NESTED: u16 = 1 << 15;
/// `struct nfgenmsg`
const HEADER: usize = 4;

/// A flow without a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) protocol: Protocol,
    /// Where the client sends.
    pub(crate) to: SocketAddr,
    /// Who answers; the same if nothing is translated.
    pub(crate) answers: SocketAddr,
    /// Attributes that name this entry and no later one.
    pub(crate) key: Vec<u8>,
}

struct Tuple {
    protocol: u8,
    src: SocketAddr,
    dst: SocketAddr,
}

impl Entry {
    /// `None`: of another protocol, of a zone (in which nothing of ours is), or
    /// not understood.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (mut original, mut reply, mut key) = (None, None, Vec::new());
        for attribute in NlasIterator::new(payload.get(HEADER..)?) {
            let attribute = attribute.ok()?;
            let value = attribute.value();
            match attribute.kind() {
                TUPLE_ORIG => {
                    original = Some(Tuple::parse(value)?);
                    push(&mut key, TUPLE_ORIG | NESTED, value);
                }
                TUPLE_REPLY => reply = Some(Tuple::parse(value)?),
                ID => push(&mut key, ID, value),
                ZONE => return None,
                _ => {}
            }
        }
        let (original, reply) = (original?, reply?);
        let protocol = match original.protocol {
            UDP => Protocol::Udp,
            SCTP => Protocol::Sctp,
            _ => return None,
        };
        Some(Self {
            protocol,
            to: original.dst,
            answers: reply.src,
            key,
        })
    }
}

impl Tuple {
    fn parse(value: &[u8]) -> Option<Self> {
        let (mut src, mut dst) = (None, None);
        let (mut protocol, mut src_port, mut dst_port) = (None, None, None);
        for part in NlasIterator::new(value) {
            let part = part.ok()?;
            for attribute in NlasIterator::new(part.value()).flatten() {
                let value = attribute.value();
                match (part.kind(), attribute.kind()) {
                    (TUPLE_IP, IP_V4_SRC | IP_V6_SRC) => src = ip(value),
                    (TUPLE_IP, IP_V4_DST | IP_V6_DST) => dst = ip(value),
                    (TUPLE_PROTO, PROTO_NUM) => protocol = value.first().copied(),
                    (TUPLE_PROTO, PROTO_SRC_PORT) => src_port = port(value),
                    (TUPLE_PROTO, PROTO_DST_PORT) => dst_port = port(value),
                    _ => {}
                }
            }
        }
        Some(Self {
            protocol: protocol?,
            src: SocketAddr::new(src?, src_port?),
            dst: SocketAddr::new(dst?, dst_port?),
        })
    }
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(value).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

fn port(value: &[u8]) -> Option<u16> {
    value.try_into().ok().map(u16::from_be_bytes)
}

/// Appends an attribute; those of the kernel are padded already where they nest.
fn push(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).expect("an attribute is at most 64 KiB long");
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}
