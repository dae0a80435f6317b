//! Writes the files of a volume so that a reader sees all of one version.
//!
//! ```text
//! volume/            ..2026xyz/          the files, never changed after the swap
//!   ..data  ───────► ..2026xyz           renamed over: this is the swap
//!   config.yaml ───► ..data/config.yaml  one link for each top-level name
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use seaway_agent_core::payload::{Payload, PayloadFile};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_new";

/// Makes the volume at `dir` hold exactly `payload`; says whether it had to change.
///
/// `group` owns the files and gets the owner's read right, if given.
pub(super) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let current = fs::read_link(dir.join(DATA))
        .ok()
        .map(|name| dir.join(name));
    if let Some(current) = &current
        && same(current, payload, group)?
    {
        link_names(dir, payload)?;
        return Ok(false);
    }
    let fresh = tempfile::Builder::new()
        .prefix("..")
        .rand_bytes(12)
        .tempdir_in(dir)?
        .keep();
    let swapped = fill(&fresh, payload, group).and_then(|()| swap(dir, &fresh));
    if let Err(error) = swapped {
        fs::remove_dir_all(&fresh)?;
        return Err(error);
    }
    link_names(dir, payload)?;
    remove_stale(dir, &fresh)?;
    Ok(true)
}

fn fill(root: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    set_mode(root, dir_mode(group))?;
    chown(root, None, group)?;
    for (path, file) in payload {
        let target = root.join(path);
        for dir in parents(root, &target) {
            if !dir.is_dir() {
                fs::create_dir(&dir)?;
                set_mode(&dir, dir_mode(group))?;
                chown(&dir, None, group)?;
            }
        }
        fs::write(&target, &file.content)?;
        chown(&target, file.owner, group)?;
        // After chown, which may clear bits.
        set_mode(&target, effective_mode(file, group))?;
    }
    Ok(())
}

fn dir_mode(group: Option<u32>) -> u32 {
    if group.is_some() { 0o2775 } else { 0o755 }
}

/// With a group, the group may read what the owner may read.
fn effective_mode(file: &PayloadFile, group: Option<u32>) -> u32 {
    match group {
        Some(_) => file.mode | 0o440,
        None => file.mode,
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Directories between `root` and `file`, outermost first.
fn parents(root: &Path, file: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = file
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != root)
        .map(Path::to_path_buf)
        .collect();
    dirs.reverse();
    dirs
}

fn swap(dir: &Path, fresh: &Path) -> io::Result<()> {
    let name = fresh.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let staged = dir.join(DATA_NEW);
    remove_if_present(&staged)?;
    symlink(name, &staged)?;
    fs::rename(&staged, dir.join(DATA))
}

fn link_names(dir: &Path, payload: &Payload) -> io::Result<()> {
    for name in top_level(payload) {
        let link = dir.join(name);
        let target = Path::new(DATA).join(name);
        if fs::read_link(&link).is_ok_and(|current| current == target) {
            continue;
        }
        remove_if_present(&link)?;
        symlink(target, link)?;
    }
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if !text.starts_with("..") && !top_level(payload).contains(text.as_ref()) {
            fs::remove_file(dir.join(&name))?;
        }
    }
    Ok(())
}

fn top_level(payload: &Payload) -> BTreeSet<&str> {
    payload
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect()
}

/// Removes earlier versions, and what a crash may have left of one.
fn remove_stale(dir: &Path, fresh: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path != fresh && path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn same(root: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    list_files(root, root, &mut found)?;
    if !found
        .iter()
        .map(String::as_str)
        .eq(payload.keys().map(String::as_str))
    {
        return Ok(false);
    }
    for (path, file) in payload {
        let path = root.join(path);
        let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
        if mode != effective_mode(file, group) || fs::read(&path)? != file.content {
            return Ok(false);
        }
    }
    Ok(true)
}

fn list_files(root: &Path, dir: &Path, found: &mut BTreeSet<String>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list_files(root, &path, found)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.insert(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seaway_agent_core::payload::insert;

    fn payload(files: &[(&str, &str, i32)]) -> Payload {
        let mut payload = Payload::new();
        for (path, content, mode) in files {
            insert(&mut payload, "v", path, content.as_bytes(), *mode).unwrap();
        }
        payload
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_appear_with_content_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let want = payload(&[("a", "1", 0o400), ("deep/er/b", "2", 0o666)]);
        assert!(write(dir.path(), &want, None).unwrap());
        assert_eq!(
            fs::read_to_string(dir.path().join("deep/er/b")).unwrap(),
            "2"
        );
        assert_eq!(mode(&dir.path().join("a")), 0o400);
        assert_eq!(mode(&dir.path().join("deep/er/b")), 0o666);
    }

    #[test]
    fn the_same_payload_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let want = payload(&[("a", "1", 0o644)]);
        write(dir.path(), &want, None).unwrap();
        let before = fs::read_link(dir.path().join(DATA)).unwrap();
        assert!(!write(dir.path(), &want, None).unwrap());
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), before);
    }

    #[test]
    fn a_new_version_replaces_all_files_and_leaves_no_old_one() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &payload(&[("a", "1", 0o644), ("gone/x", "1", 0o644)]),
            None,
        )
        .unwrap();
        let open = fs::File::open(dir.path().join("a")).unwrap();
        assert!(write(dir.path(), &payload(&[("a", "2", 0o644)]), None).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "2");
        assert!(!dir.path().join("gone").exists());
        assert_eq!(
            io::read_to_string(open).unwrap(),
            "1",
            "an open file keeps its version"
        );
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 3, "one version, ..data, one name: {names:?}");
    }

    #[test]
    fn a_mode_change_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1", 0o644)]), None).unwrap();
        assert!(write(dir.path(), &payload(&[("a", "1", 0o600)]), None).unwrap());
        assert_eq!(mode(&dir.path().join("a")), 0o600);
    }

    #[test]
    fn an_interrupted_write_is_repaired_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..leftover")).unwrap();
        symlink("..leftover", dir.path().join(DATA_NEW)).unwrap();
        write(dir.path(), &payload(&[("a", "1", 0o644)]), None).unwrap();
        assert!(!dir.path().join("..leftover").exists());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
    }
}
