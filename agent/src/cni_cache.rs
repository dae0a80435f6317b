//! The results that the runtime's CNI library keeps of every attachment.
//!
//! containerd reads an attachment's file before it calls any plugin's DEL. A loss of power
//! leaves such files empty, since the library does not sync them, and then no pod of that
//! boot can be stopped (containerd#8197). Without its file an attachment is deleted as well:
//! our plugin needs none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::IgnoredAny;
use tracing::{info, warn};

/// Below the library's folder.
const RESULTS: &str = "results";
/// The library writes in place; a file that is being written is whole after this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Removes the results below `dir` (`/var/lib/cni`) that nobody can read. To be called
/// before pods are looked after; what cannot be removed is logged.
pub async fn remove_damaged(dir: &Path) {
    let results = dir.join(RESULTS);
    let suspects = damaged(&results);
    if suspects.is_empty() {
        return;
    }
    tokio::time::sleep(PATIENCE).await;
    let still = damaged(&results);
    for path in suspects.iter().filter(|path| still.contains(path)) {
        match fs::remove_file(path) {
            Ok(()) => info!(path = %path.display(), "Removed a CNI result that nobody can read"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                warn!(path = %path.display(), %error, "Cannot remove a CNI result that nobody can read");
            }
        }
    }
}

/// Files that are no JSON. A folder that is not there has none.
fn damaged(results: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let unreadable = |path: &PathBuf| {
        fs::read(path).is_ok_and(|text| serde_json::from_slice::<IgnoredAny>(&text).is_err())
    };
    files
        .map(|entry| entry.path())
        .filter(|path| unreadable(path))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[tokio::test]
    async fn only_what_stays_unreadable_goes() {
        let dir = tempfile::tempdir().unwrap();
        remove_damaged(dir.path()).await;
        let results = dir.path().join(RESULTS);
        fs::create_dir(&results).unwrap();
        let file = |name: &str| results.join(name);
        fs::write(file("seaway-whole-eth0"), "{\"kind\":\"cniCacheV1\"}").unwrap();
        fs::write(file("seaway-empty-eth0"), "").unwrap();
        fs::write(file("seaway-half-eth0"), "{\"kind\":").unwrap();
        fs::write(file("seaway-being-written-eth0"), "{").unwrap();
        fs::create_dir(file("folder")).unwrap();
        let written = file("seaway-being-written-eth0");
        let writer = async {
            tokio::time::sleep(PATIENCE / 4).await;
            fs::write(&written, "{}").unwrap();
        };
        tokio::join!(remove_damaged(dir.path()), writer);
        let mut left: Vec<_> = fs::read_dir(&results)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let kept = ["folder", "seaway-being-written-eth0", "seaway-whole-eth0"];
        assert_eq!(left, kept);
    }
}
