//! Network namespaces: handles, identity, and the one place that enters one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{getpid, gettid};

/// `NSFS_MAGIC`, include/uapi/linux/magic.h.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);
/// The network namespace in a thread's folder.
const OWN: &str = "ns/net";

/// The calling thread's folder in /proc. That of a process's first thread is the process's own,
/// for which the kernel need not make two more folders first.
pub fn own_proc() -> &'static Path {
    let is_first = gettid() == getpid();
    Path::new(if is_first {
        "/proc/self"
    } else {
        "/proc/thread-self"
    })
}

/// An open network namespace. It lives at least as long as the handle.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
    id: NetnsId,
}

/// What makes two handles the same namespace: never the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// Device number of the nsfs file system.
    pub device: u64,
    /// Inode of the namespace. Reused by the kernel after its end.
    pub inode: u64,
}

impl Netns {
    /// Opens a namespace file such as `/run/netns/x` or `/proc/1/ns/net`.
    ///
    /// # Errors
    /// Those of `open(2)`; `InvalidInput` when the file is no namespace (a
    /// plain file that remains after its bind mount has gone is the usual
    /// case).
    pub fn open(path: &Path) -> io::Result<Self> {
        // O_NONBLOCK: a fifo at this path must not hang us.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let kind = fstatfs(&file).map_err(io::Error::from)?.filesystem_type();
        if kind != NSFS_MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a namespace file",
            ));
        }
        let metadata = file.metadata()?;
        let id = NetnsId {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        Ok(Self {
            fd: file.into(),
            id,
        })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// Those of `open(2)` on a file of /proc.
    pub fn current() -> io::Result<Self> {
        Self::open(&own_proc().join(OWN))
    }

    /// Identity, for comparison and for records.
    pub fn id(&self) -> NetnsId {
        self.id
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `work` on a throw-away thread inside the namespace.
///
/// The thread ends afterwards, so no thread ever has to switch back: a failed
/// switch back would leave a runtime's thread in a foreign namespace.
///
/// # Errors
/// Those of `setns(2)`, and the thread's creation.
pub fn in_namespace<T: Send>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, || {
                setns(netns, CloneFlags::CLONE_NEWNET)?;
                Ok::<T, io::Error>(work())
            })?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` inside the namespace on the calling thread, which comes back.
///
/// For programs that have no other thread and no async runtime: there it costs
/// microseconds, and the throw-away thread of [`in_namespace`] costs a tenth
/// of a millisecond, or several on a busy machine.
///
/// # Errors
/// Those of `open(2)` on the own namespace and of `setns(2)` on the other one.
///
/// # Panics
/// When there is no way back: to go on in a foreign namespace would harm it.
pub fn visit<T>(netns: BorrowedFd<'_>, work: impl FnOnce() -> T) -> io::Result<T> {
    let home = File::open(own_proc().join(OWN))?;
    setns(netns, CloneFlags::CLONE_NEWNET)?;
    let done = work();
    setns(&home, CloneFlags::CLONE_NEWNET)
        .expect("the way back is open to whoever was let in a moment ago");
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_not_the_path() {
        let a = Netns::current().unwrap();
        let b = Netns::open(Path::new("/proc/self/ns/net")).unwrap();
        assert_eq!(a.id(), b.id());
    }

    #[test]
    fn a_thread_is_where_it_went_and_not_where_the_process_is() {
        // A test's thread is never the first.
        assert_eq!(own_proc(), Path::new("/proc/thread-self"));
        let (own, first) = (own_proc().join(OWN), Path::new("/proc/self").join(OWN));
        assert_eq!(
            Netns::open(&own).unwrap().id(),
            Netns::open(&first).unwrap().id()
        );
    }

    #[test]
    fn plain_file_is_refused() {
        let error = Netns::open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
