//! A tree of chains, so that nothing is searched from front to back.
//!
//! A key is a sequence of nibbles (4 bits): an address, a protocol with a port, or
//! one behind the other. A chain either holds at most [`FANOUT`]
//! rules of entries, or leads by one more nibble to at most that many chains.
//! A nibble in which all keys of a chain agree costs nothing, it is skipped.
//! So a packet passes at most `FANOUT` rules per level, with few levels: 10,000
//! addresses of one range need four.
//! Where a way may get no longer, a chain holds the rules of all entries that are left: each
//! says all that it is for.
//!
//! Chains are entered by goto: branches exclude each other, so a packet that
//! does not match leaves the tree at once instead of trying the siblings.
//!
//! Chains are named by their nibbles, not by position: a new Service changes
//! the chains on its own path only.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use seaway_proxy_core::desired::{Frontend, FrontendKind, Protocol};
use sha2::{Digest, Sha256};

use crate::rendered::Table;

/// Most rules in a chain of the tree, unless it is [`DEPTH`] deep.
pub(crate) const FANOUT: usize = 16;
/// Most inner nodes in a row. nf_tables refuses a table with more than 16 chains in a row
/// (`NFT_JUMP_STACK_SIZE` of the kernel's `include/net/netfilter/nf_tables.h`), entered by jump
/// or by goto alike. Before the inner nodes there are the built-in chain, SERVICES and the root
/// ADDRESSES, behind them up to four of a Service port: FW, EXT, SVC and SEP. The way to
/// NodePorts has NODE-PORTS more before and FW less behind; those of other trees are shorter.
const DEPTH: usize = 16 - 3 - 4;

/// Nibbles of an IPv4 address.
const ADDR_V4: usize = 8;
/// Nibbles of an IPv6 address.
const ADDR_V6: usize = 32;
/// Nibbles of protocol and port.
const PORT: usize = 1 + 4;
/// Nibbles of the longest key.
const NIBBLES: usize = ADDR_V6 + PORT;
/// Nibbles that are written out in a chain's name; longer ones are hashed to
/// half as many bytes.
const NAME_NIBBLES: usize = 16;

/// What a tree is sorted by: an address, a protocol with a port, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    nibbles: [u8; NIBBLES],
    /// How many of them are the address.
    addr: usize,
    len: usize,
}

impl Key {
    /// What a chain passes on.
    const EMPTY: Self = Self {
        nibbles: [0; NIBBLES],
        addr: 0,
        len: 0,
    };

    pub(crate) fn addr(addr: IpAddr) -> Self {
        let mut key = Self::EMPTY;
        match addr {
            IpAddr::V4(addr) => addr.octets().into_iter().for_each(|o| key.push_octet(o)),
            IpAddr::V6(addr) => addr.octets().into_iter().for_each(|o| key.push_octet(o)),
        }
        key.addr = key.len;
        key
    }

    pub(crate) fn port(protocol: Protocol, port: u16) -> Self {
        Self::EMPTY.with_port(protocol, port)
    }

    /// Of a NodePort without the address.
    pub(crate) fn frontend(frontend: &Frontend) -> Self {
        let key = match frontend.kind {
            FrontendKind::NodePort => Self::EMPTY,
            _ => Self::addr(frontend.addr),
        };
        key.with_port(frontend.protocol, frontend.port)
    }

    fn with_port(mut self, protocol: Protocol, port: u16) -> Self {
        self.push(match protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
            Protocol::Sctp => 2,
        });
        port.to_be_bytes()
            .into_iter()
            .for_each(|o| self.push_octet(o));
        self
    }

    fn push_octet(&mut self, octet: u8) {
        self.push(octet >> 4);
        self.push(octet & 0xf);
    }

    fn push(&mut self, nibble: u8) {
        self.nibbles[self.len] = nibble;
        self.len += 1;
    }

    /// The first `len` nibbles, as a condition on packets.
    fn prefix(&self, len: usize) -> Prefix<'_> {
        let (addr, port) = self.nibbles[..len].split_at(self.addr.min(len));
        Prefix {
            addr,
            port,
            v6: self.addr == ADDR_V6,
        }
    }

    /// Nibbles that all of `[self, other]` share; keys between them, too.
    fn common(&self, other: &Self) -> usize {
        let pairs = self.nibbles.iter().zip(&other.nibbles).take(self.len);
        pairs.take_while(|(a, b)| a == b).count()
    }
}

/// Shown as the iptables condition that it means.
struct Prefix<'a> {
    addr: &'a [u8],
    port: &'a [u8],
    v6: bool,
}

/// `[from, to]` of a number of `width` nibbles that begins with these.
fn range(nibbles: &[u8], width: usize) -> (u128, u128) {
    let known = nibbles.iter();
    let known = known.fold(0u128, |number, n| number << 4 | u128::from(*n));
    let unknown = width - nibbles.len();
    (0..unknown).fold((known, known), |(from, to), _| (from << 4, to << 4 | 0xf))
}

impl Prefix<'_> {
    /// Short enough for a chain. Hexadecimal digits are large in what is written
    /// out, and small in what is hashed, so the two cannot meet.
    fn name(&self) -> String {
        let written = self.addr.iter().chain(self.port);
        let written = written.fold(String::new(), |mut name, nibble| {
            write!(name, "{nibble:X}").expect("writing to a String cannot fail");
            name
        });
        if written.len() <= NAME_NIBBLES {
            return written;
        }
        let hash = Sha256::digest(&written);
        hash.iter()
            .take(NAME_NIBBLES / 2)
            .fold(String::new(), |mut name, byte| {
                write!(name, "{byte:02x}").expect("writing to a String cannot fail");
                name
            })
    }

    fn fmt_addr(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = 4 * self.addr.len();
        if self.v6 {
            let (from, _) = range(self.addr, ADDR_V6);
            return write!(f, "-d {}/{bits}", Ipv6Addr::from(from));
        }
        let (from, _) = range(self.addr, ADDR_V4);
        let from = u32::try_from(from).expect("an IPv4 address has 8 nibbles");
        write!(f, "-d {}/{bits}", Ipv4Addr::from(from))
    }
}

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.addr.is_empty() {
            self.fmt_addr(f)?;
        }
        let Some((protocol, port)) = self.port.split_first() else {
            return Ok(());
        };
        if !self.addr.is_empty() {
            f.write_str(" ")?;
        }
        let protocol = match protocol {
            0 => "tcp",
            1 => "udp",
            _ => "sctp",
        };
        write!(f, "-p {protocol}")?;
        if port.is_empty() {
            return Ok(());
        }
        let (from, to) = range(port, 4);
        write!(f, " -m {protocol} --dport {from}:{to}")
    }
}

/// A rule (without its `-A chain`) and where it belongs.
pub(crate) type Entry = (Key, String);

/// Writes a tree that begins in the chain `root`; the other chains are named
/// `prefix` + nibbles. Entries must have different keys of the same length.
pub(crate) fn build(table: &mut Table, root: &str, prefix: &str, mut entries: Vec<Entry>) {
    entries.sort_unstable();
    table.add_chain(root);
    node(table, root, prefix, &entries, DEPTH);
}

/// `levels`: how many inner nodes may follow.
fn node(table: &mut Table, chain: &str, prefix: &str, entries: &[Entry], levels: usize) {
    if entries.len() <= FANOUT || levels == 0 {
        for (_, rule) in entries {
            table.push(chain, format_args!("{rule}"));
        }
        return;
    }
    let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
        return;
    };
    let depth = first.common(last);
    for branch in entries.chunk_by(|(a, _), (b, _)| a.nibbles[depth] == b.nibbles[depth]) {
        if let [(_, rule)] = branch {
            table.push(chain, format_args!("{rule}"));
            continue;
        }
        let Some((key, _)) = branch.first() else {
            continue;
        };
        let inner = key.prefix(depth + 1);
        let child = format!("{prefix}{}", inner.name());
        table.push(chain, format_args!("{inner} -g {child}"));
        table.add_chain(&child);
        node(table, &child, prefix, branch, levels - 1);
    }
}

#[cfg(test)]
mod tests;
