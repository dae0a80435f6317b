//! A cgroup2 of a fixture's own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A child of the cgroup2 root, removed with what runs in it when the guard goes.
///
/// Socket programs attached here see the processes inside and no others. A process joins with
/// [`crate::Join::cgroup`]; threads of the test process stay where they are.
#[derive(Debug)]
pub struct Cgroup2 {
    path: PathBuf,
}

impl Cgroup2 {
    /// Makes `<cgroup2 mount>/test-<pid>-<n>-<hint>`.
    #[must_use]
    #[track_caller]
    pub fn new(hint: &str) -> Self {
        Self::named(&crate::unique_name(hint))
    }

    /// Makes `<cgroup2 mount>/NAME`.
    #[must_use]
    #[track_caller]
    pub fn named(name: &str) -> Self {
        crate::sweep::once();
        let path = cgroup2_mount().join(name);
        std::fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("make {}: {error}", path.display()));
        Self { path }
    }

    /// Lets its children have every controller that it has itself (none on a hybrid machine).
    ///
    /// # Errors
    /// When the kernel refuses, because a process is directly in the group.
    pub fn delegate(&self) -> io::Result<()> {
        let root = cgroup2_mount();
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers"))?;
        for controller in controllers.split_whitespace() {
            for group in [&root, &self.path] {
                std::fs::write(
                    group.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                )?;
            }
        }
        Ok(())
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup2 {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            crate::sweep::complain(&format!("remove cgroup {}: {error}", self.path.display()));
        }
    }
}

/// Where cgroup2 is mounted: `/sys/fs/cgroup` (pure) or `/sys/fs/cgroup/unified` (hybrid).
///
/// # Panics
/// When it is not mounted at all.
#[must_use]
#[track_caller]
pub fn cgroup2_mount() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
    let found = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (target, fstype) = (fields.nth(1)?, fields.next()?);
        (fstype == "cgroup2").then(|| PathBuf::from(target))
    });
    found.expect("cgroup2 is mounted (mount -t cgroup2 none /sys/fs/cgroup/unified)")
}

/// Kills what runs in a cgroup (of either version) and below it, and removes its folders.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for child in path.read_dir().into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&child.path())?;
        }
    }
    loop {
        for pid in processes(path) {
            // A process that has ended meanwhile is what is wanted.
            kill(pid, Signal::SIGKILL).ok();
        }
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if Instant::now() > deadline {
                    return Err(error);
                }
                crate::sweep::pause(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// The processes directly in a cgroup.
pub(crate) fn processes(path: &Path) -> Vec<Pid> {
    pids(&std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default())
}

fn pids(listed: &str) -> Vec<Pid> {
    listed
        .lines()
        .filter_map(|line| line.parse().ok())
        // Of another pid namespace; a signal to it would reach our own process group.
        .filter(|pid| *pid != 0)
        .map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_seen_from_here_has_no_pid() {
        assert_eq!(pids("0\n17\n0\n"), [Pid::from_raw(17)]);
    }
}
