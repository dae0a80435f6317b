//! Removes the cgroups of ended pods. The runtime makes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::debug;

const MOUNT: &str = "/sys/fs/cgroup";

/// Removes `parent` (a path from the hierarchy's root) in every hierarchy. What is
/// still in use stays; the runtime's own files in it are no obstacle.
pub(super) fn remove(parent: &str) {
    for root in hierarchies(Path::new(MOUNT)) {
        let dir = root.join(parent.trim_start_matches('/'));
        if let Err(error) = remove_tree(&dir) {
            debug!(path = %dir.display(), %error, "Left a pod cgroup");
        }
    }
}

/// The mount itself with cgroup v2; each controller and `unified` with v1 and hybrid.
fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_owned()];
    }
    let Ok(entries) = fs::read_dir(mount) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect()
}

/// A cgroup directory goes by rmdir, children first; its files cannot be unlinked.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
