//! Which free address is next.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Pool;
use super::record::replace;

const FILE: &str = ".order";
/// A longer memory would cost more per DEL than it saves confusion.
const REMEMBERED: usize = 4096;

/// Memory of what was used when. Only a hint: the records say what is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    #[serde(default)]
    v4: FamilyOrder,
    #[serde(default)]
    v6: FamilyOrder,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FamilyOrder {
    /// The last address that was given out for the first time.
    fresh: Option<IpAddr>,
    /// Addresses that were given back, the longest ago first.
    released: VecDeque<IpAddr>,
}

impl Order {
    /// A missing or damaged file is an empty memory.
    pub(super) fn read(dir: &Path) -> Self {
        let text = std::fs::read(dir.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Remembers. Where that fails, on a full file system above all, only the
    /// order suffers, and an address is given or given back all the same.
    pub(super) fn write(&self, dir: &Path) {
        let text = serde_json::to_vec(self).expect("addresses are text");
        if let Err(error) = replace(dir, FILE, &text) {
            eprintln!("Not remembered: {error}");
        }
    }

    /// The next address that is not taken; those of `spared` only when there
    /// is no other.
    pub(super) fn next(
        &mut self,
        pool: &Pool,
        taken: &BTreeSet<IpAddr>,
        spared: &BTreeSet<IpAddr>,
    ) -> Option<IpAddr> {
        let family = self.family(pool.is_ipv4());
        let free = |address: &IpAddr| !taken.contains(address) && !spared.contains(address);
        family.next(pool, free)
    }

    pub(super) fn give_back(&mut self, address: IpAddr) {
        let family = self.family(address.is_ipv4());
        family.released.retain(|other| *other != address);
        family.released.push_back(address);
        if family.released.len() > REMEMBERED {
            family.released.pop_front();
        }
    }

    fn family(&mut self, v4: bool) -> &mut FamilyOrder {
        if v4 { &mut self.v4 } else { &mut self.v6 }
    }
}

impl FamilyOrder {
    fn next(&mut self, pool: &Pool, free: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        let known: BTreeSet<IpAddr> = self.released.iter().copied().collect();
        if let Some(address) = pool
            .after(self.fresh)
            .find(|address| free(address) && !known.contains(address))
        {
            self.fresh = Some(address);
            return Some(address);
        }
        self.fresh = pool.last();
        let released = self
            .released
            .iter()
            .position(|address| pool.contains(*address) && free(address));
        if let Some(place) = released {
            return self.released.remove(place);
        }
        // Whatever the memory has lost.
        pool.after(None).find(free)
    }
}
