//! Taking pins away: all of them, or what other versions have left.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::bpffs;
use crate::error::file;
use crate::pins::{Pins, list};
use crate::sys;

/// Removes everything that was pinned under `dir`, whichever process made it, and what other
/// versions have pinned beside it; tells whether there was anything.
///
/// Needs no programs, so it works where they cannot be loaded. It is no error when
/// nothing is there.
///
/// # Errors
///
/// [`Error::Locked`] while another process uses a directory; [`Error::File`] for
/// what the file system refuses. All is tried, and the first failure is returned.
pub fn remove_all(dir: &Path) -> Result<bool, Error> {
    let (own, others) = (remove(dir), remove_other_versions(dir));
    Ok(own? | others?)
}

/// Removes what other versions have pinned beside `dir`; tells whether there was anything.
///
/// Versions lie side by side, `seaway/v1` and `seaway/v2`. Where `dir` has another name, that
/// is its operator's choice, and nothing beside it is ours.
///
/// # Errors
///
/// As [`remove_all`].
pub fn remove_other_versions(dir: &Path) -> Result<bool, Error> {
    let others = other_versions(dir)?;
    // All of them before any failure ends this.
    let removed: Vec<_> = others.iter().map(|other| remove(other)).collect();
    removed
        .into_iter()
        .try_fold(false, |any, removed| Ok(removed? || any))
}

fn other_versions(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let Some(parent) = dir.parent().filter(|_| is_version(dir)) else {
        return Ok(Vec::new());
    };
    let mut found = list(parent)?;
    found.retain(|path| is_version(path) && path.file_name() != dir.file_name());
    Ok(found)
}

/// `…/seaway/vN`
fn is_version(dir: &Path) -> bool {
    let parent = dir.parent().and_then(Path::file_name);
    let name = dir.file_name().and_then(OsStr::to_str);
    let number = name.and_then(|name| name.strip_prefix('v'));
    parent.is_some_and(|name| name == "seaway")
        && number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn remove(dir: &Path) -> Result<bool, Error> {
    // Not to be allowed to look is not the same as absent.
    let exists = dir.try_exists().map_err(file("look for", dir))?;
    if !exists || !bpffs::is_bpffs(dir)? {
        return Ok(false);
    }
    match Pins::lock(dir)? {
        Some(pins) => pins.remove().map(|()| true),
        None => Ok(false),
    }
}

/// Takes links off their cgroups, so that nothing of them runs any more when this returns.
pub(crate) fn detach(pins: &[PathBuf]) -> Result<(), Error> {
    let links = pins.iter().filter(|path| !is_dir(path));
    try_all(links.map(|path| detach_one(path)))
}

fn detach_one(path: &Path) -> Result<(), Error> {
    let link = sys::obj_get(path).map_err(file("open", path))?;
    // Something else may be pinned here; it is only unpinned.
    if sys::cgroup_link_info(&link).ok().flatten().is_some() {
        sys::link_detach(&link).map_err(file("detach", path))?;
    }
    Ok(())
}

/// Does everything, whatever becomes of one, and returns the first failure.
pub(crate) fn try_all(steps: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
    steps.fold(Ok(()), Result::and)
}

/// Removes a directory with all that is pinned below it.
pub(crate) fn clear(dir: &Path) -> Result<(), Error> {
    for path in list(dir)? {
        unpin(&path)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file("remove", dir)(error)),
        _ => Ok(()),
    }
}

/// Removes a pin, or a directory of them.
pub(crate) fn unpin(path: &Path) -> Result<(), Error> {
    if is_dir(path) {
        return clear(path);
    }
    fs::remove_file(path).map_err(file("unpin", path))
}

/// What a link leads to is none of ours.
fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|entry| entry.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_tried_and_the_first_failure_is_told() {
        let mut tried = 0;
        let locked = |name: &str| Error::Locked { path: name.into() };
        let steps = [Ok(()), Err(locked("a")), Ok(()), Err(locked("b"))];
        let outcome = try_all(steps.into_iter().inspect(|_| tried += 1));
        assert!(
            matches!(&outcome, Err(Error::Locked { path }) if path.as_path() == Path::new("a")),
            "{outcome:?}"
        );
        assert_eq!(tried, 4);
    }

    #[test]
    fn versions_are_numbers_below_our_name() {
        for (dir, expected) in [
            ("/sys/fs/bpf/seaway/v1", true),
            ("/sys/fs/bpf/seaway/v12/", true),
            ("/sys/fs/bpf/seaway/node-a", false),
            ("/sys/fs/bpf/seaway/v", false),
            ("/sys/fs/bpf/seaway/v1-old", false),
            ("/sys/fs/bpf/cilium/v1", false),
            ("v1", false),
        ] {
            assert_eq!(is_version(Path::new(dir)), expected, "{dir}");
        }
    }
}
