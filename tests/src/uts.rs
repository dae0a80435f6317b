//! Host names that only the processes of a fixture have.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;

/// A UTS namespace in which the machine has this name; it ends with the file and the last
/// process inside.
///
/// # Errors
/// When the kernel refuses: no root, or a name that is too long.
pub fn uts_namespace(hostname: &str) -> io::Result<OwnedFd> {
    let hostname = hostname.to_owned();
    // A thread of its own: this one keeps the machine's name.
    let made = std::thread::spawn(move || -> io::Result<File> {
        unshare(CloneFlags::CLONE_NEWUTS)?;
        sethostname(hostname)?;
        File::open("/proc/thread-self/ns/uts")
    });
    made.join()
        .expect("the thread does not panic")
        .map(Into::into)
}
