//! The directory of pins: `maps/`, `links/`, and the lock that makes it ours.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use aya::maps::{MapInfo, MapType};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use seaway_ebpf_abi as abi;
use seaway_ebpf_abi::{FrontendKey, ReverseKey, Service, Slot, SlotKey, Virtual};
use tracing::{info, warn};

use crate::Error;
use crate::bpffs;
use crate::error::file;
use crate::maps::failed;
use crate::removal;

/// Removal of an empty directory and its creation by another process can cross; a
/// second round sees the outcome.
const LOCK_ATTEMPTS: usize = 3;

/// A locked directory of pins.
#[derive(Debug)]
pub(crate) struct Pins {
    dir: PathBuf,
    /// The directory itself carries the lock: bpffs has no regular files.
    _lock: Flock<File>,
}

impl Pins {
    /// Makes the directory where it is missing, and locks it.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        bpffs::ensure(dir)?;
        for _ in 0..LOCK_ATTEMPTS {
            create(dir)?;
            let Some(pins) = Self::lock(dir)? else {
                continue;
            };
            create(&pins.maps())?;
            create(&pins.links())?;
            return Ok(pins);
        }
        Err(Error::Locked {
            path: dir.to_owned(),
        })
    }

    /// None when the directory is not there, or was removed while we waited.
    pub(crate) fn lock(dir: &Path) -> Result<Option<Self>, Error> {
        let file_at = match File::open(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(file("open", dir))?,
        };
        let lock = match Flock::lock(file_at, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(Error::Locked {
                    path: dir.to_owned(),
                });
            }
            Err((_, errno)) => return Err(file("lock", dir)(errno.into())),
        };
        let locked = lock.metadata().map_err(file("stat", dir))?;
        let current = fs::metadata(dir).ok().map(|m| (m.dev(), m.ino()));
        let same = current == Some((locked.dev(), locked.ino()));
        Ok(same.then(|| Self {
            dir: dir.to_owned(),
            _lock: lock,
        }))
    }

    fn maps(&self) -> PathBuf {
        self.dir.join("maps")
    }

    fn links(&self) -> PathBuf {
        self.dir.join("links")
    }

    /// Where a map is pinned.
    pub(crate) fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// The kernel's numbers of the maps that hold the services.
    pub(crate) fn config_map_ids(&self) -> Result<[u32; 2], Error> {
        let id = |name| {
            MapInfo::from_pin(self.map(name))
                .map(|map| map.id())
                .map_err(failed("inspect", name))
        };
        Ok([id(abi::SERVICES)?, id(abi::SLOTS)?])
    }

    /// Where a link is pinned.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        self.links().join(name)
    }

    /// Unpins maps that are not what this version's programs expect; new ones take
    /// their place. aya would use them unseen.
    pub(crate) fn discard_foreign_maps(&self) -> Result<(), Error> {
        for spec in &MAPS {
            let path = self.map(spec.name);
            if !path.exists() || spec.matches(&path) {
                continue;
            }
            warn!(path = %path.display(), "Replacing a pinned map of another layout");
            fs::remove_file(&path).map_err(file("unpin", &path))?;
        }
        Ok(())
    }

    /// Removes links and maps whose names this version does not have, links first: another
    /// one's, whose work ours do by now. All are tried, and the first failure is returned.
    pub(crate) fn discard_strangers(&self) -> Result<(), Error> {
        let is_map = |name: &str| MAPS.iter().any(|spec| spec.name == name);
        let is_link = |name: &str| abi::PROGRAMS.contains(&name);
        let links = strangers(&self.links(), is_link)?;
        let maps = strangers(&self.maps(), is_map)?;
        let detached = removal::detach(&links);
        let unpin = |path: &PathBuf| {
            info!(path = %path.display(), "Removing a pin of another version");
            removal::unpin(path)
        };
        detached.and(removal::try_all(links.iter().chain(&maps).map(unpin)))
    }

    /// Removes all pins, links first: without them no program runs any more. Another version
    /// may have more than links and maps.
    pub(crate) fn remove(self) -> Result<(), Error> {
        removal::detach(&list(&self.links())?)?;
        removal::clear(&self.links())?;
        removal::clear(&self.dir)?;
        // The directory above is ours when it has our name; others may use it, too.
        match self.dir.parent() {
            Some(parent) if parent.file_name().is_some_and(|name| name == "seaway") => {
                match fs::remove_dir(parent) {
                    Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
                        Err(file("remove", parent)(error))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

fn create(dir: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(file("create", dir))
}

/// Those of a directory's pins whose names are not known.
fn strangers(dir: &Path, is_known: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, Error> {
    let mut all = list(dir)?;
    let known = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(&is_known)
    };
    all.retain(|path| !known(path));
    Ok(all)
}

/// What lies in a directory; nothing when it is not there.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(file("list", dir))?,
    };
    entries
        .map(|entry| Ok(entry.map_err(file("list", dir))?.path()))
        .collect()
}

/// What a pinned map must look like.
struct MapSpec {
    name: &'static str,
    map_type: MapType,
    key: usize,
    value: usize,
    entries: u32,
}

const MAPS: [MapSpec; 5] = [
    hash::<FrontendKey, Service>(abi::SERVICES, MapType::Hash, abi::SERVICES_CAPACITY),
    hash::<SlotKey, Slot>(abi::SLOTS, MapType::Hash, abi::SLOTS_CAPACITY),
    hash::<ReverseKey, Virtual>(abi::REVERSE_TCP, MapType::LruHash, abi::REVERSE_CAPACITY),
    hash::<ReverseKey, Virtual>(abi::REVERSE_UDP, MapType::LruHash, abi::REVERSE_CAPACITY),
    hash::<u32, u64>(abi::COUNTERS, MapType::PerCpuArray, abi::counter::COUNT),
];

const fn hash<K, V>(name: &'static str, map_type: MapType, entries: u32) -> MapSpec {
    MapSpec {
        name,
        map_type,
        key: size_of::<K>(),
        value: size_of::<V>(),
        entries,
    }
}

impl MapSpec {
    /// Anything that cannot be read as a map is none of ours.
    fn matches(&self, path: &Path) -> bool {
        let Ok(info) = MapInfo::from_pin(path) else {
            return false;
        };
        info.map_type().is_ok_and(|found| found == self.map_type)
            && info.key_size() as usize == self.key
            && info.value_size() as usize == self.value
            && info.max_entries() == self.entries
    }
}

/// Names and paths of all maps, for the loader of the object.
pub(crate) fn map_names() -> impl Iterator<Item = &'static str> {
    MAPS.iter().map(|spec| spec.name)
}

/// Puts `pin` at `path` in one step, whatever is there.
pub(crate) fn replace(
    path: &Path,
    pin: impl FnOnce(&Path) -> Result<(), io::Error>,
) -> io::Result<()> {
    // bpffs refuses names with a dot.
    let mut name = path.as_os_str().to_owned();
    name.push("-new");
    let new = PathBuf::from(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    pin(&new)?;
    fs::rename(&new, path)
}
