//! Noticing that somebody changes rules that we depend on.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use crate::firewall::FirewallError;
use crate::message::{
    DELETE_CHAIN, DELETE_RULE, DELETE_TABLE, NEW_CHAIN, NEW_RULE, NEW_TABLE, SUBSYSTEM, number,
    text,
};
use crate::{Family, TABLE, forward};

/// `NFNLGRP_NFTABLES`, include/uapi/linux/netfilter/nfnetlink.h.
const GROUP: u32 = 7;
/// The kernel gathers notifications up to `NLMSG_GOODSIZE`, at most 8 KiB.
const BUFFER: usize = 32 * 1024;
/// `struct nlmsghdr` and `struct nfgenmsg`.
const HEADERS: usize = 16 + 4;
/// The first field of `struct nfgenmsg`.
const FAMILY: usize = 16;
/// Every object but the generation names its table first: `NFTA_*_TABLE`.
const OBJECT_TABLE: u16 = 1;
/// `NFT_MSG_NEWGEN`: the end of a transaction, whatever it was about.
const NEW_GENERATION: u16 = 15;
const REMOVALS: [u16; 3] = [DELETE_TABLE, DELETE_CHAIN, DELETE_RULE];

/// Something that a [`Watch`] has heard.
#[derive(Debug, Clone, Copy)]
pub enum Heard<'a> {
    /// An object was made, changed or removed.
    Change(Changed<'a>),
    /// The end of a transaction; what it changed was heard before.
    Transaction,
    /// Notifications came faster than they were taken, or were not understood: anything
    /// may have happened.
    Lost,
}

/// One object of nftables that is not what it was.
#[derive(Debug, Clone, Copy)]
pub struct Changed<'a> {
    /// `NFPROTO_*`
    protocol: u8,
    /// `NFT_MSG_*`
    message: u16,
    attributes: &'a [u8],
}

impl Changed<'_> {
    /// Whether it belongs to this table, or is it.
    pub fn is_in(&self, family: Family, table: &str) -> bool {
        self.protocol == number(family) && self.is_of(table)
    }

    /// Whether it is the table itself.
    pub fn is_table(&self) -> bool {
        matches!(self.message, NEW_TABLE | DELETE_TABLE)
    }

    /// Whether it is a chain or a rule that names `text`: as itself, as its chain, or
    /// as where a rule leads.
    pub fn names(&self, text: &str) -> bool {
        let kinds = [NEW_CHAIN, DELETE_CHAIN, NEW_RULE, DELETE_RULE];
        let mut places = self.attributes.windows(text.len().max(1));
        kinds.contains(&self.message) && places.any(|place| place == text.as_bytes())
    }

    fn is_of(&self, table: &str) -> bool {
        let attributes = NlasIterator::new(self.attributes).flatten();
        attributes
            .filter(|attribute| attribute.kind() == OBJECT_TABLE)
            .any(|attribute| text(attribute.value()) == table)
    }
}

/// What notifications were about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Something changed in our table, or in the one with FORWARD.
    pub changed: bool,
    /// A rule, a chain or all of our table was deleted. Also when it was replaced.
    pub removed: bool,
}

impl Noticed {
    /// What is not understood, or was lost in a flood, may have been anything.
    const ANYTHING: Self = Self {
        changed: true,
        removed: true,
    };

    fn and(self, other: Self) -> Self {
        Self {
            changed: self.changed | other.changed,
            removed: self.removed | other.removed,
        }
    }
}

/// A socket that hears of every change of nftables in the network namespace
/// where it was opened; iptables-nft is heard, iptables-legacy is not.
///
/// Never blocks, so that its descriptor can be waited for.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Starts to listen in the calling thread's network namespace. What
    /// happens after the return is not missed.
    pub fn open() -> Result<Self, FirewallError> {
        let failed = |source| FirewallError::Watch { source };
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed)?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(failed)?;
        socket.add_membership(GROUP).map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        Ok(Self { socket })
    }

    /// Hears nothing until [`listen`](Self::listen). While nobody listens the kernel makes
    /// no notifications, which for a large transaction cost as much as the rest of it.
    pub fn deafen(&mut self) -> Result<(), FirewallError> {
        let failed = |source| FirewallError::Watch { source };
        self.socket.drop_membership(GROUP).map_err(failed)
    }

    /// Hears again what happens after the return.
    pub fn listen(&mut self) -> Result<(), FirewallError> {
        let failed = |source| FirewallError::Watch { source };
        self.socket.add_membership(GROUP).map_err(failed)
    }

    /// Takes all that has come so far.
    pub fn take(&mut self) -> Result<Noticed, FirewallError> {
        let mut noticed = Noticed::default();
        self.hear(|heard| noticed = noticed.and(judge(heard)))?;
        Ok(noticed)
    }

    /// The same, one after the other, for who depends on other tables.
    pub fn hear(&mut self, mut each: impl FnMut(Heard<'_>)) -> Result<(), FirewallError> {
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.socket.recv(&mut buffer.as_mut_slice(), 0) {
                Ok(length) => match buffer.get(..length) {
                    Some(datagram) => read(datagram, &mut each),
                    None => each(Heard::Lost),
                },
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS) => each(Heard::Lost),
                    _ => return Err(FirewallError::Watch { source: error }),
                },
            }
        }
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What it means for the tables that pods depend on.
pub(crate) fn judge(heard: Heard<'_>) -> Noticed {
    match heard {
        Heard::Lost => Noticed::ANYTHING,
        Heard::Transaction => Noticed::default(),
        Heard::Change(change) => {
            let ours = change.is_of(TABLE);
            Noticed {
                changed: ours || change.is_of(forward::TABLE),
                removed: ours && REMOVALS.contains(&change.message),
            }
        }
    }
}

pub(crate) fn read(mut datagram: &[u8], each: &mut impl FnMut(Heard<'_>)) {
    while let Some([l0, l1, l2, l3, k0, k1, ..]) = datagram.first_chunk::<HEADERS>() {
        let length = u32::from_ne_bytes([*l0, *l1, *l2, *l3]) as usize;
        let kind = u16::from_ne_bytes([*k0, *k1]);
        let body = datagram.get(FAMILY..length).and_then(<[u8]>::split_first);
        let Some((&protocol, rest)) = body else {
            return each(Heard::Lost);
        };
        let Some(attributes) = rest.get(HEADERS - FAMILY - 1..) else {
            return each(Heard::Lost);
        };
        match (kind >> 8, kind & 0xff) {
            (SUBSYSTEM, NEW_GENERATION) => each(Heard::Transaction),
            (SUBSYSTEM, message) => each(Heard::Change(Changed {
                protocol,
                message,
                attributes,
            })),
            _ => {}
        }
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attributes::Attributes;

    fn message(kind: u16, table: &str) -> Vec<u8> {
        let body = Attributes::after_header(2, 0).text(1, table).finish();
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend((SUBSYSTEM << 8 | kind).to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn our_table_and_that_of_forward_count_and_others_do_not() {
        let foreign = message(8, "firewalld");
        assert_eq!(notice(&foreign), Noticed::default());
        for (table, kind, removed) in [
            ("seaway", DELETE_TABLE, true),
            ("seaway", DELETE_CHAIN, true),
            ("seaway", DELETE_RULE, true),
            // An element, which goes with every pod that has a hostPort.
            ("seaway", 14, false),
            ("seaway", 6, false),
            ("filter", DELETE_RULE, false),
        ] {
            let both = [foreign.clone(), message(kind, table)].concat();
            let changed = true;
            let want = Noticed { changed, removed };
            assert_eq!(notice(&both), want, "{table} {kind}");
        }
        let generation = message(NEW_GENERATION, "seaway");
        assert_eq!(notice(&generation), Noticed::default());
    }

    fn notice(datagram: &[u8]) -> Noticed {
        let mut noticed = Noticed::default();
        read(datagram, &mut |heard| noticed = noticed.and(judge(heard)));
        noticed
    }

    #[test]
    fn a_change_is_told_by_its_table_and_by_what_it_names() {
        let rule = Attributes::after_header(2, 0)
            .text(1, "nat")
            .text(2, "SEAWAY-SERVICES")
            .finish();
        let change = |message| Changed {
            protocol: 2,
            message,
            attributes: &rule[4..],
        };
        assert!(change(DELETE_RULE).is_in(Family::V4, "nat"));
        assert!(!change(DELETE_RULE).is_in(Family::V6, "nat"));
        assert!(!change(DELETE_RULE).is_in(Family::V4, "na"));
        assert!(change(NEW_RULE).names("SEAWAY-") && !change(NEW_RULE).names("KUBE-"));
        // A set or an element, whatever it is called.
        assert!(!change(9).names("SEAWAY-") && !change(NEW_RULE).is_table());
        assert!(change(DELETE_TABLE).is_table());
    }

    #[test]
    fn transactions_are_heard_and_what_is_cut_off_is_lost() {
        let mut heard = Vec::new();
        let one = message(NEW_GENERATION, "");
        let both = [message(8, "nat"), one.clone()].concat();
        read(&both, &mut |h| heard.push(format!("{h:?}")));
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert_eq!(heard[1], "Transaction");
        for length in 17..20 {
            let mut cut = one.clone();
            cut[..4].copy_from_slice(&u32::to_ne_bytes(length));
            assert_eq!(notice(&cut), Noticed::ANYTHING);
        }
    }

    proptest! {
        #[test]
        fn any_datagram_is_judged(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            notice(&bytes);
        }
    }
}
