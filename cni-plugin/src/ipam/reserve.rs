//! Giving an attachment its addresses: one of each pool, or none at all.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::lock::lock;
use super::order::Order;
use super::record::{Held, list};
use super::sticky::{Kept, Sticky, of_others};
use super::{IpamError, Pool, Pools, Record, Store, Usage, make};

/// Addresses that were reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// One of each family, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// False when the attachment had a record before, from an `ADD` that did
    /// not come to its end.
    pub fresh: bool,
}

impl Store {
    /// Gives the attachment an address of each pool: the one that is wanted or
    /// that it holds, else one never used, else the one that was given back
    /// longest ago.
    ///
    /// # Errors
    /// On any of them nothing is reserved that was not before.
    pub fn reserve(
        &self,
        pools: &Pools,
        record: &Record,
        wanted: &[IpAddr],
    ) -> Result<Reservation, IpamError> {
        if let Some(address) = wanted.iter().find(|ip| !pools.contains(**ip)) {
            return Err(IpamError::OutOfRange { address: *address });
        }
        let want = |pool: &Pool| wanted.iter().copied().find(|ip| pool.contains(*ip));
        self.take(record, |work| {
            pools
                .iter()
                .map(|pool| work.one_of(pool, want(pool)))
                .collect()
        })
    }

    /// Records addresses that somebody else has chosen for the attachment.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn claim(&self, record: &Record, addresses: &[IpAddr]) -> Result<Reservation, IpamError> {
        self.take(record, |work| {
            addresses
                .iter()
                .map(|address| work.exactly(*address))
                .collect()
        })
    }

    fn take(
        &self,
        record: &Record,
        choose: impl FnOnce(&mut Work<'_>) -> Result<Vec<IpAddr>, IpamError>,
    ) -> Result<Reservation, IpamError> {
        make(&self.dir)?;
        let lock = lock(&self.network_dir)?;
        let held = list(&self.dir)?;
        let mut work = Work {
            store: self,
            record,
            mine: held
                .iter()
                .filter(|held| held.key == record.key)
                .cloned()
                .collect(),
            held,
            order: Order::default(),
            kept: self.sticky.as_ref().map(Sticky::list).unwrap_or_default(),
            written: Vec::new(),
        };
        let reservation = match choose(&mut work) {
            Ok(addresses) => {
                work.order.write();
                work.finish(addresses)
            }
            Err(error) => {
                work.take_back();
                Err(error)
            }
        };
        drop(lock);
        self.purge_some_of_other_boots();
        reservation
    }
}

/// What is known while the lock is held.
struct Work<'a> {
    store: &'a Store,
    record: &'a Record,
    held: Vec<Held>,
    /// Those of them that are the attachment's own.
    mine: Vec<Held>,
    order: Order,
    /// What pods had before, where that is remembered.
    kept: Vec<Kept>,
    written: Vec<Held>,
}

impl Work<'_> {
    fn one_of(&mut self, pool: &Pool, wanted: Option<IpAddr>) -> Result<IpAddr, IpamError> {
        if let Some(address) = wanted {
            return self.exactly(address);
        }
        let old = self.mine.iter().find(|held| pool.contains(held.address));
        if let Some(old) = old {
            return self.write(old.address);
        }
        let Some(address) = self.next(pool) else {
            let usage = self.store.usage_of(pool, &self.held);
            let Usage {
                pool,
                size,
                holders,
                ..
            } = usage;
            return Err(IpamError::Exhausted {
                pool,
                size,
                holders,
            });
        };
        self.write(address)
    }

    fn next(&mut self, pool: &Pool) -> Option<IpAddr> {
        let pod = self.record.pod.as_deref();
        let taken = self.taken();
        let free = |kept: &&Kept| pool.contains(kept.address) && !taken.contains(&kept.address);
        let own = self.kept.iter().filter(|kept| kept.is_of(pod)).find(free);
        if let Some(own) = own {
            return Some(own.address);
        }
        let others = of_others(&self.kept, pod);
        let next = self.order.next(&self.store.dir, pool, &taken, &others);
        // Rather another pod's former address than none.
        next.or_else(|| {
            let sticky = self.store.sticky.as_ref()?;
            let unused = sticky.oldest_first(self.kept.iter().filter(free));
            unused.first().map(|kept| kept.address)
        })
    }

    /// What was held when the lock was taken.
    fn taken(&self) -> BTreeSet<IpAddr> {
        self.held.iter().map(|held| held.address).collect()
    }

    fn exactly(&mut self, address: IpAddr) -> Result<IpAddr, IpamError> {
        let holder = self.held.iter().find(|held| held.address == address);
        match holder {
            Some(held) if held.key != self.record.key => Err(IpamError::Taken {
                address,
                holder: held.key.clone(),
            }),
            _ => self.write(address),
        }
    }

    /// Also renews the content of an older record.
    fn write(&mut self, address: IpAddr) -> Result<IpAddr, IpamError> {
        let (dir, boot_id) = (&self.store.dir, &self.store.boot_id);
        self.record.write(dir, address, boot_id)?;
        let key = self.record.key.clone();
        self.written.push(Held { address, key });
        Ok(address)
    }

    /// The pools may have changed since an ADD that was not finished: what it
    /// held and is not given again is free.
    fn finish(self, addresses: Vec<IpAddr>) -> Result<Reservation, IpamError> {
        let mut old = self.mine.iter().filter(|old| !self.written.contains(old));
        if let Err(error) = old.try_for_each(|old| old.remove(&self.store.dir)) {
            self.take_back();
            return Err(error);
        }
        if let (Some(sticky), Some(pod)) = (&self.store.sticky, &self.record.pod) {
            sticky.remember(&self.kept, pod, &addresses, &self.taken());
        }
        Ok(Reservation {
            addresses,
            fresh: self.mine.is_empty(),
        })
    }

    fn take_back(self) {
        for new in self.written.iter().filter(|new| !self.mine.contains(new)) {
            if let Err(error) = new.remove(&self.store.dir) {
                // DEL, which follows a failed ADD, finds it.
                eprintln!("Not taken back: {error}");
            }
        }
    }
}
