//! The lock over a network's records.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use super::{IpamError, Key, file};

/// The lock is held for a listing and two renames, so this is ten thousand
/// times longer than even a burst of pods needs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for the lock, which ends with the value or the process.
pub(super) fn lock(network_dir: &Path) -> Result<Flock<File>, IpamError> {
    lock_within(network_dir.join("lock"), PATIENCE)
}

/// One call at a time for an attachment. Attachments share a fixed number of
/// lock files, so that none has to be removed when it ends.
#[derive(Debug)]
pub struct Busy {
    _lock: Flock<File>,
}

impl Busy {
    const FILES: u8 = 64;

    pub(super) fn wait(network_dir: &Path, key: &Key) -> Result<Self, IpamError> {
        let digest = Sha256::digest(format!("{}:{}", key.container_id, key.ifname));
        let number = digest[0] % Self::FILES;
        let path = network_dir.join(format!("busy.{number:02}"));
        lock_within(path, PATIENCE).map(|lock| Self { _lock: lock })
    }
}

fn lock_within(path: PathBuf, patience: Duration) -> Result<Flock<File>, IpamError> {
    let open = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let open = open.map_err(file("open", &path))?;
    let failed = |errno: Errno| file("lock", &path)(errno.into());
    let open = match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((open, Errno::EWOULDBLOCK)) => open,
        Err((_, errno)) => return Err(failed(errno)),
    };
    // flock(2) knows no deadline; a thread that waits can be left behind.
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        // Nobody may be waiting any more: then the lock is let go at once.
        drop(sender.send(Flock::lock(open, FlockArg::LockExclusive)));
    });
    match receiver.recv_timeout(patience) {
        Ok(Ok(lock)) => Ok(lock),
        Ok(Err((_, errno))) => Err(failed(errno)),
        Err(_late) => Err(IpamError::Locked {
            path,
            seconds: patience.as_secs(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_52_a_lock_that_is_held_is_waited_for_only_so_long() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let error = lock_within(dir.path().join("lock"), Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, IpamError::Locked { .. }), "{error:?}");
        let path = dir.path().to_owned();
        let waiter = std::thread::spawn(move || lock(&path).is_ok());
        drop(held);
        assert!(waiter.join().unwrap());
    }
}
