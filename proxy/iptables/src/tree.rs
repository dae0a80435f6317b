//! A tree of chains, so that nothing is searched from front to back.
//!
//! A key is a sequence of nibbles (4 bits): the address, and for frontends the
//! protocol and the port behind it. A chain either holds at most [`FANOUT`]
//! rules of entries, or leads by one more nibble to at most that many chains.
//! A nibble in which all keys of a chain agree costs nothing, it is skipped.
//! So a packet passes at most `FANOUT` rules per level, with few levels: 10,000
//! addresses of one range need four.
//!
//! Chains are entered by goto: branches exclude each other, so a packet that
//! does not match leaves the tree at once instead of trying the siblings.
//!
//! Chains are named by their nibbles, not by position: a new Service changes
//! the chains on its own path only.

use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use seaway_proxy_core::desired::{Frontend, Protocol};

use crate::rendered::Table;

/// Most rules in a chain of the tree.
pub(crate) const FANOUT: usize = 16;

/// Nibbles of an IPv4 address.
const ADDR: usize = 8;
/// Nibbles of address, protocol and port.
const FRONTEND: usize = ADDR + 1 + 4;

/// What a tree is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    nibbles: [u8; FRONTEND],
    len: usize,
}

impl Key {
    pub(crate) fn addr(addr: Ipv4Addr) -> Self {
        let mut nibbles = [0; FRONTEND];
        for (i, octet) in addr.octets().into_iter().enumerate() {
            nibbles[2 * i] = octet >> 4;
            nibbles[2 * i + 1] = octet & 0xf;
        }
        Self { nibbles, len: ADDR }
    }

    pub(crate) fn frontend(addr: Ipv4Addr, frontend: &Frontend) -> Self {
        let mut key = Self::addr(addr);
        key.nibbles[ADDR] = match frontend.protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
            Protocol::Sctp => 2,
        };
        let [high, low] = frontend.port.to_be_bytes();
        key.nibbles[ADDR + 1..].copy_from_slice(&[high >> 4, high & 0xf, low >> 4, low & 0xf]);
        key.len = FRONTEND;
        key
    }

    /// The first `len` nibbles, as a condition on packets.
    fn prefix(&self, len: usize) -> Prefix<'_> {
        Prefix(&self.nibbles[..len])
    }

    /// Nibbles that all of `[self, other]` share; keys between them, too.
    fn common(&self, other: &Self) -> usize {
        let pairs = self.nibbles.iter().zip(&other.nibbles).take(self.len);
        pairs.take_while(|(a, b)| a == b).count()
    }
}

/// Shown as the iptables condition that it means.
struct Prefix<'a>(&'a [u8]);

impl Prefix<'_> {
    /// `[from, to]` of a number that consists of `nibbles` and unknown others.
    fn range(nibbles: &[u8], width: usize) -> (u32, u32) {
        let known = nibbles
            .iter()
            .fold(0u32, |number, n| number << 4 | u32::from(*n));
        let unknown = width - nibbles.len();
        (0..unknown).fold((known, known), |(from, to), _| (from << 4, to << 4 | 0xf))
    }

    fn name(&self) -> String {
        self.0.iter().fold(String::new(), |mut name, nibble| {
            write!(name, "{nibble:X}").expect("writing to a String cannot fail");
            name
        })
    }
}

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, rest) = self.0.split_at(self.0.len().min(ADDR));
        let (from, _) = Self::range(addr, ADDR);
        write!(f, "-d {}/{}", Ipv4Addr::from(from), 4 * addr.len())?;
        let Some((protocol, port)) = rest.split_first() else {
            return Ok(());
        };
        let protocol = match protocol {
            0 => "tcp",
            1 => "udp",
            _ => "sctp",
        };
        write!(f, " -p {protocol}")?;
        if port.is_empty() {
            return Ok(());
        }
        let (from, to) = Self::range(port, 4);
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
    node(table, root, prefix, &entries);
}

fn node(table: &mut Table, chain: &str, prefix: &str, entries: &[Entry]) {
    if entries.len() <= FANOUT {
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
        node(table, &child, prefix, branch);
    }
}

#[cfg(test)]
mod tests;
