//! `fsGroup`: who owns the files of an emptyDir.
//!
//! Volumes written by [`super::atomic`] get their group as they are written.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// Gives everything below `root` to `group`: files group-readable and -writable,
/// directories setgid as well, so that new files inherit the group.
///
/// With `only_on_mismatch` (`fsGroupChangePolicy: OnRootMismatch`) a root that fits
/// already ends it.
pub(super) fn give_to_group(root: &Path, group: u32, only_on_mismatch: bool) -> io::Result<()> {
    let meta = fs::symlink_metadata(root)?;
    if only_on_mismatch && meta.gid() == group && meta.mode() & 0o2070 == 0o2070 {
        return Ok(());
    }
    give(root, group)
}

fn give(path: &Path, group: u32) -> io::Result<()> {
    lchown(path, None, Some(group))?;
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let add = if meta.is_dir() { 0o2770 } else { 0o660 };
    fs::set_permissions(
        path,
        fs::Permissions::from_mode((meta.mode() & 0o7777) | add),
    )?;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn modes_open_to_the_group_and_links_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let before = fs::metadata("/etc/hostname").ok().map(|meta| meta.mode());
        let own_group = fs::metadata(&file).unwrap().gid();
        give_to_group(dir.path(), own_group, false).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o660);
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o2770, 0o2770);
        assert_eq!(
            fs::metadata("/etc/hostname").ok().map(|meta| meta.mode()),
            before
        );
    }

    #[test]
    fn on_root_mismatch_trusts_a_root_that_fits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let own_group = fs::metadata(&file).unwrap().gid();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2770)).unwrap();
        give_to_group(dir.path(), own_group, true).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }
}
