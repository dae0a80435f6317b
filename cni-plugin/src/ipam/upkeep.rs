//! What the daemon's verbs need of the records: all of them, without waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::lock::{Locked, lock, lock_idle};
use super::record::{Record, list, remove, replace};
use super::{Held, IpamError, Key, Store, file};

/// What all records say, by attachment; `None` for one that is damaged.
pub type Attachments = BTreeMap<Key, Vec<(IpAddr, Option<Record>)>>;

/// Attachments for which no call is under way, and none can begin while this
/// lives.
#[derive(Debug)]
pub struct BusyOnes {
    kept: BTreeSet<Key>,
    _locks: Locked,
}

impl BusyOnes {
    /// Whether the attachment is one of them.
    pub fn contains(&self, key: &Key) -> bool {
        self.kept.contains(key)
    }
}

/// Where a sweep remembers what it has seen.
const OBSERVATIONS: &str = "sweep.json";

/// Made and removed to see whether there is room.
const PROBE: &str = ".probe";
/// As large as a record becomes.
const RECORD_BYTES: usize = 4096;

impl Store {
    /// The networks that have records under `data_dir`, of whichever boot.
    pub fn networks(data_dir: &Path) -> Result<Vec<String>, IpamError> {
        let entries = match std::fs::read_dir(data_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(file("list", data_dir))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(file("list", data_dir))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether the network has had anything here at all.
    pub fn exists(&self) -> bool {
        self.network_dir.is_dir()
    }

    /// By which its pairs are marked.
    pub fn network(&self) -> &str {
        let name = self.network_dir.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// Whether another network with the same data dir has a record of it.
    pub fn is_held_elsewhere(&self, key: &Key) -> Result<bool, IpamError> {
        let Some(data_dir) = self.network_dir.parent() else {
            return Ok(false);
        };
        for network in Self::networks(data_dir)? {
            let other = Self::of_boot(data_dir, &network, &self.boot_id);
            if network != self.network() && !other.find(key)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All records of all networks with the same data dir.
    pub fn held_by_all(&self) -> Result<Vec<Held>, IpamError> {
        let mut all = self.holders()?;
        let Some(data_dir) = self.network_dir.parent() else {
            return Ok(all);
        };
        for network in Self::networks(data_dir)? {
            if network != self.network() {
                all.extend(Self::of_boot(data_dir, &network, &self.boot_id).holders()?);
            }
        }
        Ok(all)
    }

    /// Whether a record could be written: tries it.
    ///
    /// # Errors
    /// The operation and the path that failed.
    pub fn try_write(&self) -> Result<(), IpamError> {
        self.create()?;
        let lock = lock(&self.network_dir)?;
        let probe = self.network_dir.join(PROBE);
        let written = std::fs::write(&probe, [b' '; RECORD_BYTES]);
        let written = written.map_err(file("write", &probe));
        let removed = remove(&probe);
        drop(lock);
        written.and(removed)
    }

    /// Every attachment.
    pub fn attachments(&self) -> Result<Attachments, IpamError> {
        let mut all = Attachments::new();
        for held in self.holders()? {
            let content = held.content(&self.dir);
            let (key, address) = (held.key, held.address);
            all.entry(key).or_default().push((address, content));
        }
        Ok(all)
    }

    /// Keeps calls for these attachments waiting, but for those that have one
    /// under way already: they are left out, and not waited for.
    pub fn busy_ones<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> Result<BusyOnes, IpamError> {
        let (kept, locks) = lock_idle(&self.network_dir, keys)?;
        Ok(BusyOnes {
            kept,
            _locks: locks,
        })
    }

    /// Does `work` while no address can be given or taken, with all holders.
    pub fn quiet<T>(&self, work: impl FnOnce(&BTreeSet<Key>) -> T) -> Result<T, IpamError> {
        let lock = lock(&self.network_dir)?;
        let held = if self.dir.exists() {
            list(&self.dir)?
        } else {
            Vec::new()
        };
        let outcome = work(&held.into_iter().map(|held| held.key).collect());
        drop(lock);
        Ok(outcome)
    }

    /// The same with the addresses that are held.
    pub fn quiet_addresses<T>(
        &self,
        work: impl FnOnce(&BTreeSet<IpAddr>) -> T,
    ) -> Result<T, IpamError> {
        let lock = lock(&self.network_dir)?;
        let held = if self.dir.exists() {
            list(&self.dir)?
        } else {
            Vec::new()
        };
        let outcome = work(&held.into_iter().map(|held| held.address).collect());
        drop(lock);
        Ok(outcome)
    }

    /// Removes the records of other boots; tells how many boots there were.
    /// They are out of use, so nobody has to wait meanwhile.
    pub fn purge_other_boots(&self) -> Result<usize, IpamError> {
        let mut purged = 0;
        let entries = std::fs::read_dir(&self.network_dir);
        for entry in entries.map_err(file("list", &self.network_dir))? {
            let entry = entry.map_err(file("list", &self.network_dir))?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_dir || entry.file_name() == self.boot_id.as_str() {
                continue;
            }
            match std::fs::remove_dir_all(entry.path()) {
                Ok(()) => purged += 1,
                // An ADD does the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(file("remove", entry.path())(error)),
            }
        }
        Ok(purged)
    }

    /// What the last sweep has written down; nothing where there is no such
    /// file.
    pub fn observations(&self) -> Vec<u8> {
        std::fs::read(self.network_dir.join(OBSERVATIONS)).unwrap_or_default()
    }

    /// Writes down what a sweep has seen; nothing seen is no file.
    pub fn observe(&self, seen: Option<&[u8]>) -> Result<(), IpamError> {
        match seen {
            Some(text) => replace(&self.network_dir, OBSERVATIONS, text),
            None => remove(&self.network_dir.join(OBSERVATIONS)),
        }
    }

    /// By which other boots' observations are told.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }
}
