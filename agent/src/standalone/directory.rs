//! The directory of manifests, followed by inotify.
//!
//! Every change leads to a look at the whole directory: editors write files in many
//! ways (truncate, temporary name and rename, link), and what counts is what is there
//! when they are done.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// A file is taken when nothing has happened for this long: not while it is written.
const QUIET: Duration = Duration::from_millis(100);

/// But never later than this after the first change.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// What is in the directory, by file name; a file that cannot be read is an error.
pub(super) type Listing = BTreeMap<String, Result<Content, String>>;

/// The directory, watched.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    wakes: Arc<Notify>,
    _watcher: RecommendedWatcher,
}

impl Directory {
    /// Begins to watch; what changes from now on is seen.
    pub(super) fn watch(path: &Path) -> Result<Self, DirectoryError> {
        let wakes = Arc::new(Notify::new());
        let wake = Arc::clone(&wakes);
        let failed = |source| DirectoryError::Watch {
            path: path.to_owned(),
            source,
        };
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Our own reading is an event, too; an error may hide a change.
                if event.is_ok_and(|event| event.kind.is_access() && !is_close_after_write(&event))
                {
                    return;
                }
                wake.notify_one();
            })
            .map_err(failed)?;
        watcher
            .watch(path, RecursiveMode::NonRecursive)
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            wakes,
            _watcher: watcher,
        })
    }

    /// Waits until something has changed and the directory is quiet again.
    pub(super) async fn changed(&self) {
        self.wakes.notified().await;
        let end = tokio::time::Instant::now() + PATIENCE;
        let quiet = async {
            while tokio::time::timeout(QUIET, self.wakes.notified())
                .await
                .is_ok()
            {}
        };
        // At the end of patience whatever is there is taken.
        drop(tokio::time::timeout_at(end, quiet).await);
    }

    /// Reads all manifests.
    pub(super) fn read(&self) -> Result<Listing, DirectoryError> {
        read(&self.path)
    }
}

fn is_close_after_write(event: &notify::Event) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
    )
}

/// Reads all manifests of the directory at `path`.
pub(super) fn read(path: &Path) -> Result<Listing, DirectoryError> {
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
        match content(&path.join(name)) {
            Ok(Some(content)) => drop(listing.insert(name.to_owned(), Ok(content))),
            Ok(None) => {}
            Err(error) => drop(listing.insert(name.to_owned(), Err(error.to_string()))),
        }
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
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        read(path).unwrap().into_keys().collect()
    }

    #[test]
    fn manifests_are_taken_and_editors_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let all = [
            "a.yaml",
            "b.yml",
            "c.json",
            ".d.yaml",
            "e.yaml~",
            "f.txt",
            ".g.yaml.swp",
            "#h.yaml#",
            "i.yaml.bak",
            "4913",
        ];
        for name in all {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::create_dir(directory.path().join("sub.yaml")).unwrap();
        assert_eq!(names(directory.path()), ["a.yaml", "b.yml", "c.json"]);
    }

    #[test]
    fn what_is_no_text_is_an_error_of_that_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.yaml"), [0xff]).unwrap();
        assert!(read(directory.path()).unwrap()["a.yaml"].is_err());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = Directory::watch(Path::new("/no/such"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such"), "{error}");
        assert!(
            read(Path::new("/no/such"))
                .unwrap_err()
                .to_string()
                .contains("/no/such")
        );
    }

    #[tokio::test]
    async fn added_changed_renamed_and_removed_files_wake() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        let watched = Directory::watch(directory.path()).unwrap();
        let steps: [(&str, &dyn Fn()); 4] = [
            ("added", &|| fs::write(&path, "1").unwrap()),
            ("changed", &|| fs::write(&path, "2").unwrap()),
            ("renamed over", &|| {
                let temporary = directory.path().join(".a.yaml.tmp");
                fs::write(&temporary, "3").unwrap();
                fs::rename(&temporary, &path).unwrap();
            }),
            ("removed", &|| fs::remove_file(&path).unwrap()),
        ];
        for (what, step) in steps {
            step();
            let woken = tokio::time::timeout(Duration::from_secs(10), watched.changed()).await;
            assert!(woken.is_ok(), "{what}");
            // Reading must not wake by itself.
            watched.read().unwrap();
        }
        assert!(
            tokio::time::timeout(QUIET, watched.changed())
                .await
                .is_err(),
            "quiet"
        );
    }
}
