//! How full a pool is, and who fills it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::{Held, IpamError, Pool, Pools, Store};

/// How many holders of a full pool are named; a number alone does not say whom to ask.
const NAMED: usize = 3;

/// How full a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Its ranges.
    pub pool: String,
    /// Addresses that can be given to pods.
    pub size: u128,
    /// Who holds some of them. Who has an address that is no longer in the pool is none.
    pub holders: Holders,
    /// Addresses of the pool that nobody holds.
    pub free: u128,
}

/// Attachments that hold addresses of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    /// How many there are.
    pub count: usize,
    /// The first of them by address, where the pool is full.
    pub named: Vec<String>,
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attachments", self.count)?;
        if self.named.is_empty() {
            return Ok(());
        }
        let more = if self.count > self.named.len() {
            ", …"
        } else {
            ""
        };
        write!(f, ": {}{more}", self.named.join(", "))
    }
}

impl Store {
    /// How full the pools are, IPv4 first.
    pub fn usage(&self, pools: &Pools) -> Result<Vec<Usage>, IpamError> {
        let held = self.holders()?;
        let of = |pool: &Pool| self.usage_of(pool, &held);
        Ok(pools.iter().map(of).collect())
    }

    /// The same of one pool, with all records of the network.
    pub(super) fn usage_of(&self, pool: &Pool, held: &[Held]) -> Usage {
        let within = held.iter().filter(|held| pool.contains(held.address));
        let mut within: Vec<&Held> = within.collect();
        within.sort();
        let taken: BTreeSet<IpAddr> = within.iter().map(|held| held.address).collect();
        let free = pool.size().saturating_sub(taken.len() as u128);
        // A killed ADD may have left two records of one attachment.
        let mut seen = BTreeSet::new();
        within.retain(|held| seen.insert(&held.key));
        // Records are read only where it is an error that nothing is free.
        let named = if free == 0 { NAMED } else { 0 };
        let named = within.iter().take(named);
        Usage {
            pool: pool.to_string(),
            size: pool.size(),
            holders: Holders {
                count: within.len(),
                named: named.map(|held| held.describe(&self.dir)).collect(),
            },
            free,
        }
    }
}
