//! The handle: reads, compares, and writes in one transaction.

use std::os::fd::BorrowedFd;

use netlink_sys::protocols::NETLINK_NETFILTER;
use seaway_netlink::wire::Wire;
use seaway_netlink::{Family, NetlinkError, netns};

use crate::masquerade::Masquerade;
use crate::message::{delete_table, list_rules, mark, replace};
use crate::ruleset::{Ruleset, keyword};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Our table in the network namespace where this handle was opened.
#[derive(Debug)]
pub struct Firewall {
    wire: Wire,
}

/// What an `ensure` or a removal had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The kernel held it already.
    Unchanged,
    /// It was written.
    Changed,
}

/// Our table could not be read or written. It is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// No netfilter socket.
    #[error("open the nftables socket")]
    Open {
        /// Why.
        #[source]
        source: NetlinkError,
    },
    /// The namespace could not be entered.
    #[error("enter the network namespace")]
    Enter {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The rules could not be listed.
    #[error("read the nftables table {} seaway", keyword(*.family))]
    Read {
        /// Which of the two tables.
        family: Family,
        /// Why.
        #[source]
        source: NetlinkError,
    },
    /// The transaction was refused.
    #[error("write the nftables table {} seaway", keyword(*.family))]
    Write {
        /// Which of the two tables.
        family: Family,
        /// Why, with the statement that failed.
        #[source]
        source: NetlinkError,
    },
}

impl Firewall {
    /// Opens the handle in the calling thread's network namespace. Nothing is
    /// written.
    pub fn open() -> Result<Self, FirewallError> {
        let wire =
            Wire::open(NETLINK_NETFILTER).map_err(|source| FirewallError::Open { source })?;
        Ok(Self { wire })
    }

    /// Opens the handle in another network namespace.
    pub fn open_in(netns: BorrowedFd<'_>) -> Result<Self, FirewallError> {
        netns::in_namespace(netns, Self::open).map_err(|source| FirewallError::Enter { source })?
    }

    /// Makes the kernel masquerade exactly this. Reads first, so that calling
    /// it again costs one list and changes nothing.
    ///
    /// # Errors
    /// A family that failed is as it was before; IPv4 comes first.
    pub fn ensure_masquerade(&mut self, wanted: &Masquerade) -> Result<Change, FirewallError> {
        let mut change = Change::Unchanged;
        for family in FAMILIES {
            let ruleset = wanted.ruleset(family);
            if self.holds(family, ruleset.as_ref())? {
                continue;
            }
            match ruleset {
                Some(ruleset) => self.write(family, &replace(&ruleset))?,
                None => self.write(family, &delete_table(family))?,
            }
            change = Change::Changed;
        }
        Ok(change)
    }

    /// Whether the kernel holds exactly this; writes nothing.
    pub fn has_masquerade(&mut self, wanted: &Masquerade) -> Result<bool, FirewallError> {
        for family in FAMILIES {
            if !self.holds(family, wanted.ruleset(family).as_ref())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes everything of ours; absent is fine.
    pub fn remove_all(&mut self) -> Result<Change, FirewallError> {
        let mut change = Change::Unchanged;
        for family in FAMILIES {
            match self.wire.transact(&delete_table(family)) {
                Ok(_) => change = Change::Changed,
                // A kernel without nf_tables for this family has nothing of ours.
                Err(error) if error.is_not_found() || error.is_unsupported() => {}
                Err(source) => return Err(FirewallError::Write { family, source }),
            }
        }
        Ok(change)
    }

    fn holds(&mut self, family: Family, wanted: Option<&Ruleset>) -> Result<bool, FirewallError> {
        let mut have = match self.wire.dump(&list_rules(family)) {
            Ok(replies) => replies.iter().filter_map(mark).collect::<Vec<_>>(),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) if error.is_unsupported() && wanted.is_none() => Vec::new(),
            Err(source) => return Err(FirewallError::Read { family, source }),
        };
        // The kernel lists chains in its own order, and rules in theirs.
        let mut want = wanted.map(Ruleset::marks).unwrap_or_default();
        have.sort_by(|(a, _), (b, _)| a.cmp(b));
        want.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(have == want)
    }

    fn write(
        &mut self,
        family: Family,
        frames: &[seaway_netlink::wire::Frame],
    ) -> Result<(), FirewallError> {
        self.wire
            .transact(frames)
            .map(drop)
            .map_err(|source| FirewallError::Write { family, source })
    }
}
