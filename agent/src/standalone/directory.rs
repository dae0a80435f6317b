//! The directory of manifests, followed by inotify.
//!
//! Every change leads to a look at the whole directory: editors write files in many
//! ways (truncate, temporary name and rename, link), and what counts is what is there
//! when they are done. A look now and then finds what inotify does not tell of: a link
//! to a link that has changed, a disk of the network.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::time::{Instant, timeout};
use tracing::debug;

use events::Events;

/// What is read is taken when nothing has happened for this long since.
const QUIET: Duration = Duration::from_millis(100);

/// Where it never gets quiet, files that are let alone are taken this long after the
/// first change.
const PATIENCE: Duration = Duration::from_secs(2);

/// A look without a reason; half of kubelet's `fileCheckFrequency`.
const LOOK: Duration = Duration::from_secs(10);

/// A file that stays open for writing for so long deserves a word.
const LONG_OPEN: Duration = Duration::from_secs(5);

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is not there, or is no directory, or may not be read.
    #[error("read directory {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The kernel gives no notifications.
    #[error("watch directory {path}")]
    Watch {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: notify::Error,
    },
}

/// A manifest file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) modified: Timestamp,
}

/// What a file has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Content(Content),
    /// It is being written: what is in it is not meant yet.
    Busy,
    /// With the reason.
    Unreadable(String),
}

/// What is in the directory, by file name.
pub(super) type Listing = BTreeMap<String, Found>;

/// The directory, watched.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    events: Arc<Events>,
    watcher: RecommendedWatcher,
    /// Device and inode of what is watched, by path.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

impl Directory {
    /// Begins to watch; what changes from now on is seen.
    pub(super) fn watch(path: &Path) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path).map_err(|source| DirectoryError::Read {
            path: path.to_owned(),
            source,
        })?;
        let events = Arc::new(Events::new(&path));
        let noted = Arc::clone(&events);
        let watcher = notify::recommended_watcher(move |event| noted.note(event));
        let watcher = watcher.map_err(|source| DirectoryError::Watch {
            path: path.clone(),
            source,
        })?;
        let mut directory = Self {
            path,
            events,
            watcher,
            watched: BTreeMap::new(),
        };
        directory.watch_all(BTreeSet::new())?;
        Ok(directory)
    }

    /// Waits for a change, or a while.
    pub(super) async fn changed(&self) {
        drop(timeout(LOOK, self.events.happened()).await);
    }

    /// Reads all manifests, as often as something happens meanwhile.
    pub(super) async fn read(&mut self) -> Result<Listing, DirectoryError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let begun = Instant::now();
            let listing = self.look();
            if timeout(QUIET, self.events.happened()).await.is_err() {
                return listing;
            }
            if begun >= end {
                self.events.happen();
                let mut listing = listing?;
                for (name, found) in &mut listing {
                    if self.events.last(&self.files(name)) >= Some(begun) {
                        *found = Found::Busy;
                    }
                }
                return Ok(listing);
            }
        }
    }

    fn look(&mut self) -> Result<Listing, DirectoryError> {
        let mut listing = list(&self.path)?;
        let mut targets = BTreeSet::new();
        for (name, found) in &mut listing {
            let files = self.files(name);
            match self.events.open_since(&files) {
                Some(since) if since.elapsed() > LONG_OPEN => {
                    let problem = "is open for writing, and is taken when it is closed";
                    *found = Found::Unreadable(problem.to_owned());
                }
                Some(_since) => *found = Found::Busy,
                None => {}
            }
            let target = files.get(1).and_then(|target| target.parent());
            targets.extend(target.map(Path::to_owned));
        }
        self.watch_all(targets)?;
        Ok(listing)
    }

    /// A manifest's path, and the one that it is a link to.
    fn files(&self, name: &str) -> Vec<PathBuf> {
        let path = self.path.join(name);
        let target = path.canonicalize().ok().filter(|_target| path.is_symlink());
        [path].into_iter().chain(target).collect()
    }

    /// Watches the directory, the one that it is in (it may be replaced), and those that
    /// links lead to.
    fn watch_all(&mut self, targets: BTreeSet<PathBuf>) -> Result<(), DirectoryError> {
        let mut wanted = targets.clone();
        wanted.extend(self.path.parent().map(Path::to_owned));
        for path in &wanted {
            if let Err(source) = self.watch_one(path) {
                // The look now and then is left.
                debug!(path = %path.display(), error = %source, "Could not watch a directory");
            }
        }
        let path = self.path.clone();
        self.watch_one(&path)
            .map_err(|source| DirectoryError::Watch {
                path: path.clone(),
                source,
            })?;
        let is_over = |watched: &&PathBuf| **watched != path && !wanted.contains(*watched);
        let over: Vec<_> = self.watched.keys().filter(is_over).cloned().collect();
        for path in over {
            self.watched.remove(&path);
            drop(self.watcher.unwatch(&path));
        }
        self.events.set_targets(targets);
        Ok(())
    }

    /// Watches what is now at `path`.
    fn watch_one(&mut self, path: &Path) -> notify::Result<()> {
        let metadata = fs::metadata(path).map_err(notify::Error::io)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.watched.get(path) == Some(&identity) {
            return Ok(());
        }
        if self.watched.remove(path).is_some() {
            // It may be gone, and its watch with it.
            drop(self.watcher.unwatch(path));
        }
        self.watcher.watch(path, RecursiveMode::NonRecursive)?;
        self.watched.insert(path.to_owned(), identity);
        // What happened between is not told.
        self.events.happen();
        Ok(())
    }
}

/// Reads all manifests of the directory at `path`.
fn list(path: &Path) -> Result<Listing, DirectoryError> {
    let failed = |source| DirectoryError::Read {
        path: path.to_owned(),
        source,
    };
    let mut listing = Listing::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = manifest_name(&name) else {
            continue;
        };
        let found = match content(&path.join(name)) {
            Ok(Some(content)) => Found::Content(content),
            Ok(None) => continue,
            Err(error) => Found::Unreadable(format!("cannot be read: {error}")),
        };
        listing.insert(name.to_owned(), found);
    }
    Ok(listing)
}

/// `*.yaml`, `*.yml`, `*.json`, unless hidden; editors' copies end otherwise.
fn manifest_name(name: &OsStr) -> Option<&str> {
    let text = name.to_str()?;
    let extension = Path::new(text).extension()?.to_str()?;
    let taken = ["yaml", "yml", "json"].contains(&extension) && !text.starts_with('.');
    taken.then_some(text)
}

/// Nothing for what is no file, or is gone by now.
fn content(path: &Path) -> io::Result<Option<Content>> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let modified = Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => Ok(Some(Content {
            text: text?,
            modified,
        })),
    }
}

#[cfg(test)]
mod tests;
