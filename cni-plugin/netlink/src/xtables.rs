//! What the rules of iptables-legacy look like from outside.
//!
//! `ip_tables` has no netlink and tells nobody of a change. It can be asked for a
//! table's size, which costs a microsecond, and for the table as it lies in the
//! kernel; what changed there is for `iptables-save` to say.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{Family, NetlinkError};

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`, include/uapi/linux/netfilter_ipv4/ip_tables.h.
const GET_INFO: libc::c_int = 64;
/// `IPT_SO_GET_ENTRIES` and `IP6T_SO_GET_ENTRIES`.
const GET_ENTRIES: libc::c_int = 65;
/// `XT_TABLE_MAXNAMELEN`
const NAME: usize = 32;
/// `struct ipt_getinfo`: name, hooks, five entry points, five underflows, entries, size.
const INFO: usize = NAME + 4 + 5 * 4 + 5 * 4 + 4 + 4;
/// `struct ipt_get_entries` before its entries, which are aligned to eight bytes.
const ENTRIES_HEADER: usize = NAME + 8;
/// `struct xt_counters`
const COUNTERS: usize = 16;

/// The tables of one network namespace, for good.
#[derive(Debug)]
pub struct Xtables {
    socket: OwnedFd,
    family: Family,
}

/// Number and size of a table's rules, and where its built-in chains begin.
///
/// Equal as long as rules are neither added nor removed; a rule that is replaced by
/// one of the same size is not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(Vec<u8>);

impl Shape {
    /// How many there are: rules, policies, and two for each chain that is not built in
    /// (`struct ipt_getinfo`, include/uapi/linux/netfilter_ipv4/ip_tables.h).
    pub fn entries(&self) -> u32 {
        let [.., a, b, c, d, _, _, _, _] = self.0[..] else {
            return 0;
        };
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Bytes of all rules.
    fn size(&self) -> usize {
        let last = self.0.last_chunk().copied();
        last.map_or(0, u32::from_ne_bytes) as usize
    }
}

impl Xtables {
    /// In the calling thread's network namespace. Needs `CAP_NET_ADMIN` there.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open(family: Family) -> Result<Self, NetlinkError> {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
            .map_err(|error| NetlinkError::io("open xtables", format!("{family:?}"), &error))?;
        Ok(Self {
            socket: socket.into(),
            family,
        })
    }

    /// The shape of a table; the kernel makes the table if it can and there is none.
    ///
    /// # Errors
    /// There is no such table, or no `ip_tables`.
    pub fn shape(&self, table: &str) -> Result<Shape, NetlinkError> {
        let mut info = named(table, INFO);
        self.ask(GET_INFO, &mut info)
            .map_err(|error| NetlinkError::io("get info of", table.to_owned(), &error))?;
        Ok(Shape(info))
    }

    /// A number that changes with every rule of a table, whose shape is `shape`, and not
    /// with what the rules count. Reads all of the table.
    ///
    /// # Errors
    /// Likewise, and when the shape is not that any more.
    pub fn digest(&self, table: &str, shape: &Shape) -> Result<u64, NetlinkError> {
        let mut entries = named(table, ENTRIES_HEADER + shape.size());
        if let (Some(field), Ok(size)) =
            (entries.get_mut(NAME..NAME + 4), u32::try_from(shape.size()))
        {
            field.copy_from_slice(&size.to_ne_bytes());
        }
        self.ask(GET_ENTRIES, &mut entries)
            .map_err(|error| NetlinkError::io("get entries of", table.to_owned(), &error))?;
        let entries = entries.get(ENTRIES_HEADER..).unwrap_or_default();
        Ok(digest(entries, self.family))
    }

    fn ask(&self, option: libc::c_int, answer: &mut [u8]) -> io::Result<()> {
        let level = match self.family {
            Family::V4 => libc::IPPROTO_IP,
            Family::V6 => libc::IPPROTO_IPV6,
        };
        let socket = self.socket.as_fd().as_raw_fd();
        getsockopt(socket, level, option, answer)
    }
}

#[allow(
    unsafe_code,
    reason = "these options belong to no crate that has safe ones"
)]
fn getsockopt(
    socket: libc::c_int,
    level: libc::c_int,
    option: libc::c_int,
    answer: &mut [u8],
) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(answer.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `length` bytes, as long as `answer` is; both live
    // until the call has returned.
    let done = unsafe {
        libc::getsockopt(
            socket,
            level,
            option,
            answer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A buffer that begins with the name of a table.
fn named(table: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let places = bytes.iter_mut().zip(table.bytes());
    // The last byte of the name stays zero.
    for (place, byte) in places.take(NAME - 1) {
        *place = byte;
    }
    bytes
}

/// Of `struct ipt_entry` or `struct ip6t_entry`, one after the other.
fn digest(mut entries: &[u8], family: Family) -> u64 {
    // Behind `struct ipt_ip` or `struct ip6t_ip6`: nfcache, target_offset, next_offset,
    // comefrom, and counters, aligned to eight bytes.
    let (next_at, counters_at) = match family {
        Family::V4 => (84 + 4 + 2, 96),
        Family::V6 => (136 + 4 + 2, 152),
    };
    let mut hasher = DefaultHasher::new();
    while let Some(next) = entries.get(next_at..next_at + 2) {
        let length = next.first_chunk().copied().map_or(0, u16::from_ne_bytes);
        let Some((entry, rest)) = entries.split_at_checked(length.into()) else {
            break;
        };
        // `comefrom` is the kernel's own note.
        let parts = (
            entry.get(..next_at + 2),
            entry.get(counters_at + COUNTERS..),
        );
        let (Some(before), Some(behind)) = parts else {
            break;
        };
        before.hash(&mut hasher);
        behind.hash(&mut hasher);
        entries = rest;
    }
    // Nothing, or what is not understood.
    entries.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: u8, packets: u8, target: u8) -> Vec<u8> {
        let mut bytes = vec![0; 152];
        bytes[0] = address;
        bytes[90] = 152;
        bytes[96] = packets;
        bytes[140] = target;
        bytes
    }

    #[test]
    fn counters_do_not_matter_and_everything_else_does() {
        let table = |packets, target| [entry(1, packets, 7), entry(2, packets, target)].concat();
        let of = |bytes: &[u8]| digest(bytes, Family::V4);
        assert_eq!(of(&table(0, 8)), of(&table(5, 8)));
        assert_ne!(of(&table(0, 8)), of(&table(0, 9)));
        assert_ne!(of(&table(0, 8)), of(&entry(1, 0, 7)));
        assert_ne!(of(&[]), of(&entry(1, 0, 7)));
    }

    #[test]
    fn what_is_cut_off_or_leads_nowhere_is_no_endless_loop() {
        let whole = entry(1, 0, 7);
        for length in 0..whole.len() {
            digest(&whole[..length], Family::V4);
            digest(&whole[..length], Family::V6);
        }
        digest(&[0; 1000], Family::V4);
    }

    #[test]
    fn the_size_is_the_last_field() {
        let mut info = named("nat", INFO);
        info[INFO - 4..].copy_from_slice(&712u32.to_ne_bytes());
        assert_eq!(Shape(info).size(), 712);
    }
}
