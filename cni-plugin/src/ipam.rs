//! Which address belongs to which attachment: one file per address.
//!
//! ```text
//! DATADIR/NETWORK/lock                       locked for microseconds
//! DATADIR/NETWORK/busy                       a byte for each call, locked until its end
//! DATADIR/NETWORK/BOOT-ID/ADDRESS=CONTAINER:IFNAME    one record
//! DATADIR/NETWORK/BOOT-ID/.order-v4, -v6     who is next (only a hint)
//! ```
//!
//! The listing of the folder is the whole truth: a record says by its name
//! alone which address is taken, and appears and disappears by one `rename`
//! or `unlink`. So a process killed at any step leaves either a record or
//! none, never an address with two holders and never a second index that
//! disagrees. An attachment with an address of each family has two records; a
//! process killed between them leaves one, which DEL takes away as it does two.
//! `.order-v4` and `.order-v6` make reuse least recently used; when they are lost
//! or stale, only the order suffers.
//!
//! No namespace survives a boot, hence no address does: records lie under the
//! boot's id, and folders of other boots are leftovers that are deleted. That
//! is also why nothing is fsynced.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

mod lock;
mod order;
mod pool;
mod range;
mod record;
mod reserve;
mod sticky;
mod upkeep;
mod usage;

pub use pool::{Pool, Pools};
pub use range::RangeSpec;
pub use record::{Extra, Held, Key, Record, RecordedIpam, RecordedPort};
pub use reserve::Reservation;

pub use lock::Locked;
pub use upkeep::{Attachments, BusyOnes};
pub use usage::{Holders, Usage};

use lock::{lock, lock_attachment};
use record::{list, list_of};
use sticky::Sticky;

/// The kernel's name for this boot, random(4).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The records of one network in this boot.
#[derive(Debug, Clone)]
pub struct Store {
    network_dir: PathBuf,
    dir: PathBuf,
    boot_id: String,
    sticky: Option<Sticky>,
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
        size: u128,
        /// Who has them.
        holders: Holders,
    },
    /// The address that was asked for is somebody else's.
    #[error("address {address} is taken")]
    Taken {
        /// Which one.
        address: IpAddr,
        /// Whose it is.
        holder: Key,
    },
    /// The address that was asked for can not be given to a pod.
    #[error("address {address} is in no range")]
    OutOfRange {
        /// Which one.
        address: IpAddr,
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

/// More than one ADD makes, so that they become fewer.
const PURGED_AT_ONCE: usize = 16;

impl Store {
    /// The store of a network under `data_dir`. Nothing is written yet.
    pub fn open(data_dir: &Path, network: &str) -> Result<Self, IpamError> {
        Ok(Self::of_boot(data_dir, network, &boot_id()?))
    }

    /// The same, with the boot's id given.
    pub fn of_boot(data_dir: &Path, network: &str, boot_id: &str) -> Self {
        let network_dir = data_dir.join(network);
        let dir = network_dir.join(boot_id);
        Self {
            network_dir,
            dir,
            boot_id: boot_id.to_owned(),
            sticky: None,
        }
    }

    /// Makes the folder of the network.
    pub fn create(&self) -> Result<(), IpamError> {
        make(&self.network_dir)
    }

    /// Keeps other calls for the same attachment waiting while the value lives.
    ///
    /// The specification forbids that such calls overlap; a runtime that does it
    /// all the same must not make one call take away what the other has made.
    /// `None` where there is no folder yet or no room for a lock: then the rule
    /// alone has to do.
    pub fn busy(&self, key: &Key) -> Result<Option<Locked>, IpamError> {
        match lock_attachment(&self.network_dir, key) {
            Err(IpamError::File { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// The same, giving a pod that comes again the address that it had, as
    /// remembered under `dir`.
    #[must_use]
    pub fn with_sticky(self, dir: &Path, network: &str) -> Self {
        let sticky = Some(Sticky::new(dir, network));
        Self { sticky, ..self }
    }

    /// Gives the attachment's addresses back; tells which they were. None is
    /// fine.
    pub fn release(&self, key: &Key) -> Result<Vec<IpAddr>, IpamError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let lock = lock(&self.network_dir)?;
        let held = list(&self.dir)?;
        let mine: Vec<_> = held.iter().filter(|held| held.key == *key).collect();
        if !mine.is_empty() {
            // First into the queue: killed in between, the address is queued
            // and taken, and is passed over.
            order::give_back(&self.dir, mine.iter().map(|held| held.address));
        }
        for held in &mine {
            held.remove(&self.dir)?;
        }
        drop(lock);
        Ok(mine.iter().map(|held| held.address).collect())
    }

    /// The addresses that an attachment holds, IPv4 first.
    pub fn find(&self, key: &Key) -> Result<Vec<IpAddr>, IpamError> {
        let held = self.holders()?.into_iter();
        let mut mine: Vec<_> = held.filter(|held| held.key == *key).collect();
        mine.sort();
        Ok(mine.into_iter().map(|held| held.address).collect())
    }

    /// What the records of an attachment say besides their names. `None` for
    /// one that is damaged.
    pub fn contents(&self, key: &Key) -> Result<Vec<(IpAddr, Option<Record>)>, IpamError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let mine = list_of(&self.dir, key)?.into_iter();
        Ok(mine
            .map(|held| (held.address, held.content(&self.dir)))
            .collect())
    }

    /// All records.
    pub fn holders(&self) -> Result<Vec<Held>, IpamError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let lock = lock(&self.network_dir)?;
        let held = list(&self.dir)?;
        drop(lock);
        Ok(held)
    }

    /// Records of other boots are nobody's, since no namespace outlives a boot.
    /// They go a few at a time, so that no call waits for them, and one that
    /// cannot be removed is in nobody's way.
    fn purge_some_of_other_boots(&self) {
        // Most file systems count a folder's folders: itself by two names, and this boot's.
        if std::fs::metadata(&self.network_dir).is_ok_and(|folder| folder.nlink() == 3) {
            return;
        }
        let entries = std::fs::read_dir(&self.network_dir).into_iter().flatten();
        let others = entries.flatten().filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir())
                && entry.file_name() != self.boot_id.as_str()
        });
        for dir in others.map(|entry| entry.path()) {
            let records = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            for record in records.take(PURGED_AT_ONCE) {
                drop(std::fs::remove_file(record.path()));
            }
            // Refused while it is not empty.
            drop(std::fs::remove_dir(&dir));
        }
    }
}

/// Mostly it is there, and to look costs less than to try to make it.
fn make(dir: &Path) -> Result<(), IpamError> {
    if dir.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(file("create", dir))
}

/// Of the running boot.
fn boot_id() -> Result<String, IpamError> {
    let text = std::fs::read_to_string(BOOT_ID).map_err(file("read", BOOT_ID))?;
    Ok(text.trim().to_owned())
}

fn file(op: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> IpamError {
    let path = path.into();
    move |source| IpamError::File { op, path, source }
}

#[cfg(test)]
mod tests;
