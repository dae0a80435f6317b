//! The handle: reads, compares, and writes in one transaction.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use netlink_sys::protocols::NETLINK_NETFILTER;
use seaway_netlink::wire::{Frame, Wire};
use seaway_netlink::{Family, NetlinkError, netns};

use crate::hostports::HostPort;
use crate::masquerade::{self, Masquerade};
use crate::message::{Mark, delete_chains, delete_table, list_rules, mark, replace};
use crate::ruleset::{Ruleset, keyword};

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Our table in the network namespace where this handle was opened.
#[derive(Debug)]
pub struct Firewall {
    pub(crate) wire: Wire,
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
    /// Somebody has the port already.
    #[error("host port {port} leads to {holder} already")]
    PortTaken {
        /// Which one.
        port: HostPort,
        /// The pod that has it.
        holder: IpAddr,
    },
    /// Changes cannot be listened to.
    #[error("listen to changes of nftables")]
    Watch {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// iptables-legacy is in use, and its program did not do its work.
    #[error("{program}: {why}")]
    Legacy {
        /// Which one.
        program: &'static str,
        /// What it said.
        why: String,
    },
    /// Flows of UDP and SCTP could not be listed or forgotten.
    #[error("forget flows of UDP and SCTP")]
    Flows {
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
            let marks = self.marks(family, ruleset.is_some())?;
            if agree(&marks, &masquerade::CHAINS, ruleset.as_ref()) {
                continue;
            }
            let is_ours = |(chain, _): &Mark| masquerade::CHAINS.contains(&chain.as_str());
            match ruleset {
                Some(ruleset) => self.write(family, &replace(&ruleset))?,
                None if marks.iter().all(is_ours) => self.write(family, &delete_table(family))?,
                None => self.write(family, &delete_chains(family, &masquerade::CHAINS))?,
            }
            change = Change::Changed;
        }
        Ok(change)
    }

    /// Whether the kernel holds exactly this; writes nothing.
    pub fn has_masquerade(&mut self, wanted: &Masquerade) -> Result<bool, FirewallError> {
        for family in FAMILIES {
            let ruleset = wanted.ruleset(family);
            let marks = self.marks(family, ruleset.is_some())?;
            if !agree(&marks, &masquerade::CHAINS, ruleset.as_ref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes everything of ours, the accepts in FORWARD too; absent is fine.
    pub fn remove_all(&mut self) -> Result<Change, FirewallError> {
        let mut change = self.remove_forward_accept()?;
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

    /// All rules of our table. A kernel without nf_tables has none, which is
    /// only an error when rules are `wanted`.
    pub(crate) fn marks(
        &mut self,
        family: Family,
        wanted: bool,
    ) -> Result<Vec<Mark>, FirewallError> {
        match self.wire.dump(&list_rules(family)) {
            Ok(replies) => Ok(replies.iter().filter_map(mark).collect()),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) if error.is_unsupported() && !wanted => Ok(Vec::new()),
            Err(source) => Err(FirewallError::Read { family, source }),
        }
    }

    pub(crate) fn write(&mut self, family: Family, frames: &[Frame]) -> Result<(), FirewallError> {
        self.wire
            .transact(frames)
            .map(drop)
            .map_err(|source| FirewallError::Write { family, source })
    }
}

/// Whether the chains of one feature hold what is wanted of them.
pub(crate) fn agree(have: &[Mark], chains: &[&str], wanted: Option<&Ruleset>) -> bool {
    // The kernel lists chains in its own order, and rules in theirs.
    let mut want = wanted.map(Ruleset::marks).unwrap_or_default();
    let mut have: Vec<Mark> = have
        .iter()
        .filter(|(chain, _)| chains.contains(&chain.as_str()))
        .cloned()
        .collect();
    have.sort_by(|(a, _), (b, _)| a.cmp(b));
    want.sort_by(|(a, _), (b, _)| a.cmp(b));
    have == want
}
