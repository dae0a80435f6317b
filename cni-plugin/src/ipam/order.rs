//! Which free address is next.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::record::replace;
use super::{IpamError, Pool};

const FILE: &str = ".order";
/// A longer memory would cost more per DEL than it saves confusion.
const REMEMBERED: usize = 16 * 1024;

/// Memory of what was used when. Only a hint: the records say what is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The last address that was given out for the first time.
    fresh: Option<Ipv4Addr>,
    /// Addresses that were given back, the longest ago first.
    released: VecDeque<Ipv4Addr>,
}

impl Order {
    /// A missing or damaged file is an empty memory.
    pub(super) fn read(dir: &Path) -> Self {
        let text = std::fs::read(dir.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), IpamError> {
        let text = serde_json::to_vec(self).expect("addresses are text");
        replace(dir, FILE, &text)
    }

    pub(super) fn next(&mut self, pool: &Pool, taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let free = |address: &Ipv4Addr| !taken.contains(address);
        let known: BTreeSet<Ipv4Addr> = self.released.iter().copied().collect();
        if let Some(address) = pool
            .after(self.fresh)
            .find(|address| free(address) && !known.contains(address))
        {
            self.fresh = Some(address);
            return Some(address);
        }
        self.fresh = pool.last();
        while let Some(address) = self.released.pop_front() {
            if pool.contains(address) && free(&address) {
                return Some(address);
            }
        }
        // Whatever the memory has lost.
        pool.after(None).find(free)
    }

    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.released.retain(|other| *other != address);
        self.released.push_back(address);
        if self.released.len() > REMEMBERED {
            self.released.pop_front();
        }
    }
}
