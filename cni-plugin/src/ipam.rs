//! Which address belongs to which attachment: one file per address.
//!
//! ```text
//! DATADIR/NETWORK/lock                       flock, held for microseconds
//! DATADIR/NETWORK/BOOT-ID/ADDRESS=CONTAINER:IFNAME    one record
//! DATADIR/NETWORK/BOOT-ID/.order             who is next (only a hint)
//! ```
//!
//! The listing of the folder is the whole truth: a record says by its name
//! alone which address is taken, and appears and disappears by one `rename`
//! or `unlink`. So a process killed at any step leaves either a record or
//! none, never an address with two holders and never a second index that
//! disagrees. `.order` makes reuse least recently used; when it is lost or
//! stale, only the order suffers.
//!
//! No namespace survives a boot, hence no address does: records lie under the
//! boot's id, and folders of other boots are leftovers that are deleted. That
//! is also why nothing is fsynced.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

mod lock;
mod order;
mod pool;
mod record;

pub use pool::Pool;
pub use record::{Key, Record};

use lock::lock;
use order::Order;
use record::{Held, list};

/// The kernel's name for this boot, random(4).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The records of one network in this boot.
#[derive(Debug, Clone)]
pub struct Store {
    network_dir: PathBuf,
    dir: PathBuf,
    boot_id: String,
}

/// An address that was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The address.
    pub address: Ipv4Addr,
    /// False when the attachment had a record before, from an `ADD` that did
    /// not come to its end.
    pub fresh: bool,
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Addresses that can be given to pods.
    pub size: u64,
    /// Records, also of addresses that are no longer in the pool.
    pub holders: usize,
    /// Addresses of the pool that nobody holds.
    pub free: u64,
}

/// The store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// Every address is taken.
    #[error("no free address in {pool}")]
    Exhausted {
        /// The ranges.
        pool: String,
        /// How many addresses they have for pods.
        size: u64,
        /// How many records there are.
        holders: usize,
    },
    /// The lock was not to be had in time.
    #[error("lock {}", path.display())]
    Locked {
        /// Its file.
        path: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A file operation failed.
    #[error("{op} {}", path.display())]
    File {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// The store of a network under `data_dir`. Nothing is written yet.
    pub fn open(data_dir: &Path, network: &str) -> Result<Self, IpamError> {
        let boot_id = std::fs::read_to_string(BOOT_ID).map_err(file("read", BOOT_ID))?;
        Ok(Self::of_boot(data_dir, network, boot_id.trim()))
    }

    /// The same, with the boot's id given.
    pub fn of_boot(data_dir: &Path, network: &str, boot_id: &str) -> Self {
        let network_dir = data_dir.join(network);
        let dir = network_dir.join(boot_id);
        Self {
            network_dir,
            dir,
            boot_id: boot_id.to_owned(),
        }
    }

    /// Gives the attachment an address: the one that it holds, else one never
    /// used, else the one that was given back longest ago.
    pub fn reserve(&self, pool: &Pool, record: &Record) -> Result<Reservation, IpamError> {
        std::fs::create_dir_all(&self.network_dir).map_err(file("create", &self.network_dir))?;
        let lock = lock(&self.network_dir)?;
        self.remove_other_boots()?;
        std::fs::create_dir_all(&self.dir).map_err(file("create", &self.dir))?;
        let held = list(&self.dir)?;
        for old in held.iter().filter(|held| held.key == record.key) {
            if pool.contains(old.address) {
                return Ok(Reservation {
                    address: old.address,
                    fresh: false,
                });
            }
            // The pool has changed since the ADD that was not finished.
            old.remove(&self.dir)?;
        }
        let mut order = Order::read(&self.dir);
        let taken: BTreeSet<Ipv4Addr> = held.iter().map(|held| held.address).collect();
        let Some(address) = order.next(pool, &taken) else {
            let (size, holders) = (pool.size(), held.len());
            return Err(IpamError::Exhausted {
                pool: pool.to_string(),
                size,
                holders,
            });
        };
        record.write(&self.dir, address, &self.boot_id)?;
        order.write(&self.dir)?;
        drop(lock);
        Ok(Reservation {
            address,
            fresh: true,
        })
    }

    /// Gives the attachment's addresses back; tells which they were. None is
    /// fine.
    pub fn release(&self, key: &Key) -> Result<Vec<Ipv4Addr>, IpamError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let lock = lock(&self.network_dir)?;
        let mut released = Vec::new();
        for held in list(&self.dir)?.iter().filter(|held| held.key == *key) {
            // First into the queue: killed in between, the address is queued
            // and taken, and is passed over.
            let mut order = Order::read(&self.dir);
            order.give_back(held.address);
            order.write(&self.dir)?;
            held.remove(&self.dir)?;
            released.push(held.address);
        }
        drop(lock);
        Ok(released)
    }

    /// The address that an attachment holds.
    pub fn find(&self, key: &Key) -> Result<Option<Ipv4Addr>, IpamError> {
        let held = self.holders()?;
        Ok(held
            .into_iter()
            .find(|held| held.key == *key)
            .map(|held| held.address))
    }

    /// How full the pool is.
    pub fn usage(&self, pool: &Pool) -> Result<Usage, IpamError> {
        let held = self.holders()?;
        let taken: BTreeSet<Ipv4Addr> = held
            .iter()
            .map(|held| held.address)
            .filter(|ip| pool.contains(*ip))
            .collect();
        let free = pool.size().saturating_sub(taken.len() as u64);
        Ok(Usage {
            size: pool.size(),
            holders: held.len(),
            free,
        })
    }

    fn holders(&self) -> Result<Vec<Held>, IpamError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let lock = lock(&self.network_dir)?;
        let held = list(&self.dir)?;
        drop(lock);
        Ok(held)
    }

    fn remove_other_boots(&self) -> Result<(), IpamError> {
        let entries = std::fs::read_dir(&self.network_dir);
        for entry in entries.map_err(file("list", &self.network_dir))? {
            let entry = entry.map_err(file("list", &self.network_dir))?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && entry.file_name() != self.boot_id.as_str() {
                std::fs::remove_dir_all(entry.path()).map_err(file("remove", entry.path()))?;
            }
        }
        Ok(())
    }
}

fn file(op: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> IpamError {
    let path = path.into();
    move |source| IpamError::File { op, path, source }
}

#[cfg(test)]
mod tests;
