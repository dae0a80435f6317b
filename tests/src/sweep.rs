//! Cleaning up: at the end of a fixture, and after test processes that were killed.
//!
//! What a fixture makes carries the pid of its process in its name, so that a later process
//! recognises what is left over.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Every name that a fixture gives begins with this, then the pid.
pub(crate) const PREFIX: &str = "test-";
/// Where `ip netns` looks for namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// Removes what dead test processes have left, once per process.
pub(crate) fn once() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| {
        let v1 = crate::node::cgroup_v1_mounts();
        for mount in std::iter::once(crate::cgroup2_mount()).chain(v1) {
            for path in leftovers(&mount) {
                report(&path, crate::cgroup::remove_tree(&path));
            }
        }
        for path in leftovers(Path::new(NETNS_DIR)) {
            report(&path, remove_netns(&path));
        }
        for path in leftovers(&std::env::temp_dir()) {
            report(&path, std::fs::remove_dir_all(&path));
        }
    });
}

fn report(path: &Path, removed: io::Result<()>) {
    match removed {
        Ok(()) => eprintln!(
            "removed {}, left over by a test that was killed",
            path.display()
        ),
        // By another process that sweeps, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // Somebody keeps it; that is no fault of the test that looks.
        Err(error) => eprintln!("remove {}: {error}", path.display()),
    }
}

pub(crate) fn leftovers(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries
        .filter(|entry| owner_is_dead(&entry.file_name()))
        .map(|entry| entry.path())
        .collect()
}

/// Whether the name is one of ours, made by a process that is gone.
fn owner_is_dead(name: &std::ffi::OsStr) -> bool {
    let pid = name.to_str().and_then(owner);
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// The pid of the process that gave this name.
pub(crate) fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Kills the processes in a network namespace and removes it. An absent one is fine.
pub(crate) fn remove_netns(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => kill_inside(&file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match umount2(path, MntFlags::MNT_DETACH) {
        // Made by a process that was killed between the file and the mount.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(error.into()),
    }
    std::fs::remove_file(path)
}

/// Kills, and waits for, every process whose network namespace is the open one.
fn kill_inside(netns: &File) -> io::Result<()> {
    let wanted = nix::sys::stat::fstat(netns.as_fd())?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut left = 0;
        for pid in all_processes() {
            let Ok(found) = nix::sys::stat::stat(Path::new(&format!("/proc/{pid}/ns/net"))) else {
                continue; // it ended, or it is a kernel thread or a zombie, which has none
            };
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) && pid != Pid::this()
            {
                left += 1;
                kill(pid, Signal::SIGKILL).ok();
            }
        }
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("{left} processes do not die")));
        }
        pause(Duration::from_millis(5));
    }
}

fn all_processes() -> Vec<Pid> {
    let entries = Path::new("/proc")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.map(Pid::from_raw).collect()
}

/// A failed clean-up fails the test, unless it is failing already.
pub(crate) fn complain(message: &str) {
    if std::thread::panicking() {
        eprintln!("{message}");
    } else {
        panic!("{message}");
    }
}

/// Between two looks at something that cannot be waited for.
pub(crate) fn pause(time: Duration) {
    // Nothing is polled by this: the caller's loop looks again, and has a deadline.
    std::thread::park_timeout(time);
}
