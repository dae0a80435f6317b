//! Which address a pod had before: kept over restarts and boots.
//!
//! One empty file per address, named `ADDRESS=NAMESPACE_POD`. Only a wish: an
//! address that is taken, or that is needed for lack of others, is not kept,
//! and a folder that cannot be read or written costs only the wish.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    since: SystemTime,
}

impl Sticky {
    pub(super) fn new(dir: &Path, network: &str) -> Self {
        Self {
            dir: dir.join(network),
        }
    }

    /// Everything remembered, the longest unused first.
    pub(super) fn list(&self) -> Vec<Kept> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten();
        let mut all: Vec<Kept> = entries.flatten().filter_map(|e| Kept::read(&e)).collect();
        all.sort_by_key(|kept| (kept.since, kept.address));
        all
    }

    /// Remembers that the pod has these addresses, and no others.
    pub(super) fn remember(&self, pod: &str, addresses: &[IpAddr]) {
        let Some(pod) = file_name(pod) else { return };
        for old in self.list() {
            let same_pod = old.pod == pod && !addresses.contains(&old.address);
            let same_address = old.pod != pod && addresses.contains(&old.address);
            if same_pod || same_address {
                self.report(std::fs::remove_file(self.path(old.address, &old.pod)));
            }
        }
        for address in addresses {
            self.report(self.touch(*address, &pod));
        }
    }

    fn touch(&self, address: IpAddr, pod: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let file = File::create(self.path(address, pod))?;
        file.set_modified(SystemTime::now())?;
        // The name is all there is, so the folder is what must reach the disk.
        File::open(&self.dir)?.sync_all()
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
            since: entry.metadata().ok()?.modified().ok()?,
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
