//! Which networks are swept, and in which order.

use std::path::Path;

use crate::error::Error;
use crate::ipam::Store;

/// Of the conf that the daemon writes.
const OWN: &str = "seaway";

/// Folders where calls have had a lock. In any other there is nothing of ours, however much it
/// may look like records of another boot. The daemon's own network is the first, so that it
/// waits for no lock and no IPAM plugin of another.
pub(super) fn networks(data_dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = Store::networks(data_dir)?;
    names.retain(|name| data_dir.join(name).join("lock").is_file());
    names.sort_by_key(|name| name != OWN);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_own_network_is_swept_before_others_and_foreign_folders_never() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["zoo", "seaway", "another", "theirs"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            if name != "theirs" {
                std::fs::write(dir.path().join(name).join("lock"), "").unwrap();
            }
        }
        let names = networks(dir.path()).unwrap();
        assert_eq!(names, ["seaway", "another", "zoo"]);
    }
}
