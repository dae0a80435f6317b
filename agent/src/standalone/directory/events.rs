//! What the kernel tells of the directory: that something has happened, and which files
//! are being written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Filled by the watcher's thread.
#[derive(Debug)]
pub(super) struct Events {
    directory: PathBuf,
    wakes: Notify,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Directories that links lead to.
    targets: BTreeSet<PathBuf>,
    /// Files that were written to, or made empty, and not closed; since when.
    open: BTreeMap<PathBuf, Instant>,
    /// When something last happened to a file.
    last: BTreeMap<PathBuf, Instant>,
}

impl Events {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            wakes: Notify::new(),
            seen: Mutex::default(),
        }
    }

    /// Returns when something has happened since it last returned.
    pub(super) async fn happened(&self) {
        self.wakes.notified().await;
    }

    /// As if something had happened.
    pub(super) fn happen(&self) {
        self.wakes.notify_one();
    }

    pub(super) fn set_targets(&self, targets: BTreeSet<PathBuf>) {
        let mut seen = self.seen();
        seen.targets = targets;
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        seen.open.retain(|path, _since| is_there(path));
        seen.last.retain(|path, _at| is_there(path));
    }

    /// Since when one of `files` is being written.
    pub(super) fn open_since(&self, files: &[PathBuf]) -> Option<Instant> {
        let seen = self.seen();
        files.iter().find_map(|file| seen.open.get(file)).copied()
    }

    /// When something last happened to any of `files`.
    pub(super) fn last(&self, files: &[PathBuf]) -> Option<Instant> {
        let seen = self.seen();
        files
            .iter()
            .filter_map(|file| seen.last.get(file))
            .max()
            .copied()
    }

    pub(super) fn note(&self, event: notify::Result<Event>) {
        // An error may hide a change.
        if event.is_ok_and(|event| !self.matters(&event)) {
            return;
        }
        self.happen();
    }

    /// Takes in an event; whether it is worth a look.
    fn matters(&self, event: &Event) -> bool {
        let mut seen = self.seen();
        if event.need_rescan() {
            // The end of a file's writing may be among what was lost.
            seen.open.clear();
            return true;
        }
        // Our own reading is an event, too.
        if event.kind.is_access() && !is_close_after_write(event.kind) {
            return false;
        }
        let is_ours = |path: &&PathBuf| {
            let is_in = |directory| path.parent() == Some(directory);
            **path == self.directory
                || is_in(&self.directory)
                || seen.targets.iter().any(|target| is_in(target))
        };
        let ours: Vec<_> = event.paths.iter().filter(is_ours).cloned().collect();
        let now = Instant::now();
        for path in &ours {
            if opens(event.kind, path) {
                seen.open.entry(path.clone()).or_insert(now);
            } else if closes(event.kind) {
                seen.open.remove(path);
            }
            seen.last.insert(path.clone(), now);
        }
        !ours.is_empty() || event.paths.is_empty()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_close_after_write(kind: EventKind) -> bool {
    kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}

/// The file's writer has more to do: it will close it.
fn opens(kind: EventKind, path: &Path) -> bool {
    match kind {
        EventKind::Modify(ModifyKind::Data(_)) => true,
        // Links come by this event, too, and are never closed; what was written to a new
        // file already has an event of its own.
        EventKind::Create(_) => fs::symlink_metadata(path)
            .is_ok_and(|file| file.is_file() && file.nlink() == 1 && file.len() == 0),
        _ => false,
    }
}

/// What is at this path is whole, or gone.
fn closes(kind: EventKind) -> bool {
    is_close_after_write(kind)
        || matches!(
            kind,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
        )
}
