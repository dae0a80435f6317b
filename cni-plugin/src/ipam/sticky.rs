//! Which address a pod had before: kept over restarts and boots.
//!
//! One empty file per address, named `ADDRESS=NAMESPACE_POD`, whose time of change says when
//! it was last seen in use. Only a wish: an address that is taken, or that is needed for lack
//! of others, is not kept, and a folder that cannot be read or written costs only the wish.
//! What is taken is said by the records alone, whatever is forgotten here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::PURGED_AT_ONCE;

/// As many are remembered of each family at most (more only where more pods than that live),
/// as the daemon's flag for it says, too. It is several times as many as large nodes run at
/// once. Every `ADD` reads all their names under the lock, and a /64 always has a fresh address,
/// so without a bound each pod that was ever here would slow down all that come.
pub(super) const REMEMBERED: usize = 4096;

/// The memory of one network.
#[derive(Debug, Clone)]
pub(super) struct Sticky {
    dir: PathBuf,
}

/// An address that a pod had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) address: IpAddr,
    pod: String,
}

impl Sticky {
    pub(super) fn new(dir: &Path, network: &str) -> Self {
        Self {
            dir: dir.join(network),
        }
    }

    /// Everything remembered, in no order: names alone, without a look at a single file.
    pub(super) fn list(&self) -> Vec<Kept> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten();
        entries.flatten().filter_map(|e| Kept::read(&e)).collect()
    }

    /// The longest unused first. Looks at each file, so it is for who has to choose.
    pub(super) fn oldest_first<'a>(
        &self,
        kept: impl IntoIterator<Item = &'a Kept>,
    ) -> Vec<&'a Kept> {
        let mut all: Vec<&Kept> = kept.into_iter().collect();
        all.sort_by_cached_key(|kept| (self.since(kept), kept.address));
        all
    }

    /// Remembers that the pod has these addresses, and no others. `kept` is all that is
    /// remembered, and `held` what is in use.
    pub(super) fn remember(
        &self,
        kept: &[Kept],
        pod: &str,
        addresses: &[IpAddr],
        held: &BTreeSet<IpAddr>,
    ) {
        let Some(pod) = file_name(pod) else { return };
        let (concerned, others): (Vec<&Kept>, Vec<&Kept>) = kept
            .iter()
            .partition(|old| old.pod == pod || addresses.contains(&old.address));
        for old in concerned {
            if old.pod != pod || !addresses.contains(&old.address) {
                self.forget(old);
            }
        }
        for address in addresses {
            let family = |old: &&Kept| old.address.is_ipv4() == address.is_ipv4();
            let others: Vec<&Kept> = others.iter().copied().filter(family).collect();
            self.make_room(&others, held);
            self.report(self.touch(*address, &pod));
        }
    }

    /// Where one more would be too many, the longest unused go: several at once, since finding
    /// them takes a look at all.
    fn make_room(&self, others: &[&Kept], held: &BTreeSet<IpAddr>) {
        if others.len() < REMEMBERED {
            return;
        }
        let mut left = PURGED_AT_ONCE;
        for old in self.oldest_first(others.iter().copied()) {
            if left == 0 {
                return;
            }
            if held.contains(&old.address) {
                // In use until now, however long ago its pod came.
                self.report(self.mark(old.address, &old.pod));
            } else {
                self.forget(old);
                left -= 1;
            }
        }
    }

    fn forget(&self, old: &Kept) {
        self.report(std::fs::remove_file(self.path(old.address, &old.pod)));
    }

    fn touch(&self, address: IpAddr, pod: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        self.mark(address, pod)?;
        // The name is all there is, so the folder is what must reach the disk.
        File::open(&self.dir)?.sync_all()
    }

    fn mark(&self, address: IpAddr, pod: &str) -> io::Result<()> {
        File::create(self.path(address, pod))?.set_modified(SystemTime::now())
    }

    /// `None`, which comes first, where that cannot be told.
    fn since(&self, kept: &Kept) -> Option<SystemTime> {
        let file = self.path(kept.address, &kept.pod).metadata();
        file.and_then(|file| file.modified()).ok()
    }

    fn path(&self, address: IpAddr, pod: &str) -> PathBuf {
        self.dir.join(format!("{address}={pod}"))
    }

    fn report(&self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            eprintln!("Not remembered in {}: {error}", self.dir.display());
        }
    }
}

impl Kept {
    fn read(entry: &std::fs::DirEntry) -> Option<Self> {
        let name = entry.file_name();
        let (address, pod) = name.to_str()?.split_once('=')?;
        Some(Self {
            address: address.parse().ok()?,
            pod: pod.to_owned(),
        })
    }

    pub(super) fn is_of(&self, pod: Option<&str>) -> bool {
        pod.and_then(file_name).as_deref() == Some(self.pod.as_str())
    }
}

/// Those that others would miss.
pub(super) fn of_others(kept: &[Kept], pod: Option<&str>) -> BTreeSet<IpAddr> {
    let others = kept.iter().filter(|kept| !kept.is_of(pod));
    others.map(|kept| kept.address).collect()
}

/// `namespace/name` without the slash; Kubernetes' names have no underscore.
/// `None` for what is no such name.
fn file_name(pod: &str) -> Option<String> {
    let (namespace, name) = pod.split_once('/')?;
    let fits = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    // An address and both names must fit in 255 bytes.
    (fits(namespace) && fits(name) && pod.len() <= 200).then(|| format!("{namespace}_{name}"))
}
