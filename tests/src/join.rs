//! What a child process joins before it starts.
#![allow(unsafe_code, reason = "pre_exec runs between fork and exec")]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::{Cgroup2, Netns, PrivateMounts};

/// Variables that name a proxy for HTTP, as most programs read them.
const PROXIES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];

/// Places that a command enters between fork and exec.
///
/// ```no_run
/// # use seaway_testbed::{Join, Netns, Cgroup2};
/// let (ns, cgroup) = (Netns::new("a"), Cgroup2::new("a"));
/// let mut date = Join::new().netns(&ns).cgroup(&cgroup).command("date");
/// assert!(date.status().unwrap().success());
/// ```
#[derive(Debug, Default)]
pub struct Join {
    cgroups: Vec<OwnedFd>,
    namespaces: Vec<OwnedFd>,
}

impl Join {
    /// Joins nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters a network namespace.
    #[must_use]
    pub fn netns(mut self, netns: &Netns) -> Self {
        self.namespaces.push(netns.fd());
        self
    }

    /// Enters a mount namespace. Paths of the command are then looked up in there.
    #[must_use]
    pub fn mounts(mut self, mounts: &PrivateMounts) -> Self {
        self.namespaces.push(mounts.fd());
        self
    }

    /// Enters any other namespace, by an open file of it.
    #[must_use]
    pub fn namespace(mut self, fd: OwnedFd) -> Self {
        self.namespaces.push(fd);
        self
    }

    /// Moves into a cgroup.
    #[must_use]
    pub fn cgroup(self, cgroup: &Cgroup2) -> Self {
        self.cgroup_dir(cgroup.path())
    }

    /// Moves into a cgroup (of either version) by its folder.
    #[must_use]
    #[track_caller]
    pub fn cgroup_dir(mut self, dir: &std::path::Path) -> Self {
        let procs = dir.join("cgroup.procs");
        let file = std::fs::File::options()
            .write(true)
            .open(&procs)
            .unwrap_or_else(|error| panic!("open {}: {error}", procs.display()));
        self.cgroups.push(file.into());
        self
    }

    /// A command that runs in these places, from which no proxy of the machine's is reached.
    #[must_use]
    pub fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in PROXIES {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        self.apply(&mut command);
        command
    }

    /// Makes a command run in these places, with no signal blocked.
    pub fn apply(self, command: &mut Command) {
        let enter = move || {
            nix::sys::signal::SigSet::empty().thread_set_mask()?;
            for cgroup in &self.cgroups {
                write_zero(cgroup.as_raw_fd())?;
            }
            for namespace in &self.namespaces {
                // SAFETY: a plain system call on a file that this closure owns.
                if unsafe { libc::setns(namespace.as_raw_fd(), 0) } != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(enter) };
    }
}

/// "0" in cgroup.procs moves the writer itself.
fn write_zero(fd: RawFd) -> io::Result<()> {
    // SAFETY: one byte is read from a static string.
    if unsafe { libc::write(fd, c"0".as_ptr().cast(), 1) } == 1 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
