//! Echo requests and replies: ICMP (RFC 792) and ICMPv6 (RFC 4443, section 4).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::Ipv6DontFrag;
use nix::sys::socket::{SockaddrStorage, recvfrom, setsockopt};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Sending or receiving echoes failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {address}")]
pub struct ProbeError {
    operation: &'static str,
    /// Ours while opening and receiving, the peer's while sending.
    address: IpAddr,
    #[source]
    source: io::Error,
}

/// An echo reply of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Who sent it.
    pub from: IpAddr,
    /// The number that the request had.
    pub sequence: u16,
}

/// Sends and receives echoes of one family from one address, without blocking.
///
/// A raw socket and not a ping socket: those are for the groups of
/// `net.ipv4.ping_group_range` only, which is empty by default, root included.
#[derive(Debug)]
pub struct EchoSocket {
    socket: Socket,
    source: IpAddr,
    identifier: u16,
}

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
/// Flag "don't fragment" of the IPv4 header (RFC 791, 3.1), with offset 0.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

impl EchoSocket {
    /// A socket of the calling thread's network namespace, bound to `source`, whose
    /// packets are routed as those with `mark`.
    ///
    /// # Errors
    /// This node does not have the address (yet), or the process lacks `CAP_NET_RAW`.
    pub fn open(source: IpAddr, mark: u32, identifier: u16) -> Result<Self, ProbeError> {
        let socket = open(source, mark, identifier).map_err(|error| ProbeError {
            operation: "open a socket for probes from",
            address: source,
            source: error,
        })?;
        Ok(Self {
            socket,
            source,
            identifier,
        })
    }

    /// The address that it sends from.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Sends an echo request in an IP packet of `size` bytes, which nobody may fragment.
    ///
    /// # Errors
    /// There is no way to the peer, or the first link does not take packets of this size.
    pub fn send(&self, to: IpAddr, sequence: u16, size: u32) -> Result<(), ProbeError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let packet = match (self.source, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                packet_v4(from, to, self.identifier, sequence, size)
            }
            // The kernel makes the header and fills in the checksum.
            _ => echo(
                ECHO_REQUEST_V6,
                self.identifier,
                sequence,
                size.saturating_sub(V6_HEADER),
            ),
        };
        let sent = self.socket.send_to(&packet, &SocketAddr::new(to, 0).into());
        sent.map(drop).map_err(|source| ProbeError {
            operation: "send a probe to",
            address: to,
            source,
        })
    }

    /// The next reply to this socket's requests; `None` when no more are there.
    ///
    /// # Errors
    /// What the kernel has to say; the socket can be used on.
    pub fn receive(&self) -> Result<Option<Echo>, ProbeError> {
        // The rest of each packet is cut off.
        let mut start = [0; 128];
        loop {
            let received = recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut start);
            let (length, from) = match received {
                Ok((length, from)) => (length, from),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(errno) => {
                    return Err(ProbeError {
                        operation: "receive answers to probes from",
                        address: self.source,
                        source: errno.into(),
                    });
                }
            };
            let from = from.as_ref().and_then(ip_of);
            let sequence = start.get(..length).and_then(|p| self.sequence_of(p));
            if let (Some(from), Some(sequence)) = (from, sequence) {
                return Ok(Some(Echo { from, sequence }));
            }
        }
    }

    /// Of a reply to one of our requests.
    fn sequence_of(&self, packet: &[u8]) -> Option<u16> {
        let (expected, icmp) = match self.source {
            // Raw sockets of IPv4 see the IP header, those of IPv6 do not (raw(7), RFC 3542).
            IpAddr::V4(_) => {
                let header = usize::from(packet.first()? & 0xf) * 4;
                (ECHO_REPLY, packet.get(header..)?)
            }
            IpAddr::V6(_) => (ECHO_REPLY_V6, packet),
        };
        let [kind, 0, _, _, id_high, id_low, high, low, ..] = *icmp else {
            return None;
        };
        let ours = kind == expected && u16::from_be_bytes([id_high, id_low]) == self.identifier;
        ours.then(|| u16::from_be_bytes([high, low]))
    }
}

impl AsFd for EchoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for EchoSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

fn open(source: IpAddr, mark: u32, identifier: u16) -> io::Result<Socket> {
    let (domain, protocol) = match source {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_mark(mark)?;
    // Before the address: what comes between binding and filter would wake us for nothing.
    socket.attach_filter(&only_replies(source, identifier))?;
    if source.is_ipv4() {
        // The kernel then fragments nothing, and refuses what is too long for the link
        // whatever it has heard of the path: as IP_MTU_DISCOVER with IP_PMTUDISC_PROBE.
        socket.set_header_included_v4(true)?;
    } else {
        setsockopt(&socket, Ipv6DontFrag, &true)?;
    }
    socket.bind(&SocketAddr::new(source, 0).into())?;
    Ok(socket)
}

/// Lets nothing wake us but replies with our identifier: a peer's own probes come to
/// the same address. Classic BPF, for `SO_ATTACH_FILTER`.
fn only_replies(source: IpAddr, identifier: u16) -> Vec<SockFilter> {
    // BPF_{LDX|B|MSH, LD|B|ABS, LD|B|IND, LD|H|ABS, LD|H|IND, JMP|JEQ|K, RET|K}, linux/bpf_common.h
    const IP_HEADER_LENGTH: u16 = 0xb1;
    const BYTE: u16 = 0x30;
    const BYTE_AFTER_X: u16 = 0x50;
    const HALF: u16 = 0x28;
    const HALF_AFTER_X: u16 = 0x48;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let (byte, half, reply) = match source {
        IpAddr::V4(_) => (BYTE_AFTER_X, HALF_AFTER_X, ECHO_REPLY),
        IpAddr::V6(_) => (BYTE, HALF, ECHO_REPLY_V6),
    };
    let step = SockFilter::new;
    let mut filter = Vec::new();
    if source.is_ipv4() {
        filter.push(step(IP_HEADER_LENGTH, 0, 0, 0));
    }
    filter.extend([
        step(byte, 0, 0, 0),
        step(IF_EQUAL, 0, 3, reply.into()),
        step(half, 0, 0, 4),
        step(IF_EQUAL, 0, 1, identifier.into()),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]);
    filter
}

/// With its IP header, whose length and checksum the kernel fills in (raw(7)).
fn packet_v4(from: Ipv4Addr, to: Ipv4Addr, identifier: u16, sequence: u16, size: usize) -> Vec<u8> {
    let mut icmp = echo(
        ECHO_REQUEST,
        identifier,
        sequence,
        size.saturating_sub(V4_HEADER),
    );
    let sum = checksum(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&sum);
    // Version 4, five words, TTL as the kernel's own packets have it.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0];
    packet.extend(DONT_FRAGMENT);
    packet.extend([64, 1, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.append(&mut icmp);
    packet
}

/// Of `size` bytes, header included; without checksum.
fn echo(kind: u8, identifier: u16, sequence: u16, size: usize) -> Vec<u8> {
    let mut echo = vec![0; size.max(ICMP_HEADER)];
    echo[0] = kind;
    echo[4..6].copy_from_slice(&identifier.to_be_bytes());
    echo[6..8].copy_from_slice(&sequence.to_be_bytes());
    echo
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        // Folded at once, so that no length overflows it.
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_size_asked_for_and_a_right_checksum() {
        let (from, to) = (Ipv4Addr::new(10, 244, 0, 1), Ipv4Addr::new(10, 244, 1, 1));
        for size in [28, 29, 1450, 65_535] {
            let packet = packet_v4(from, to, 0xbeef, 7, size);
            assert_eq!(packet.len(), size);
            assert_eq!(packet[6] & 0x40, 0x40);
            assert_eq!(checksum(&packet[20..]), 0);
        }
        // Never less than a header.
        assert_eq!(packet_v4(from, to, 1, 1, 0).len(), 28);
    }
}
