//! The lock over a network's records.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::{IpamError, file};

/// The lock is held for a listing and two renames, so this is ten thousand
/// times longer than even a burst of pods needs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for the lock, which ends with the value or the process.
pub(super) fn lock(network_dir: &Path) -> Result<Flock<File>, IpamError> {
    lock_within(network_dir, PATIENCE)
}

fn lock_within(network_dir: &Path, patience: Duration) -> Result<Flock<File>, IpamError> {
    let path = network_dir.join("lock");
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
        let error = lock_within(dir.path(), Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, IpamError::Locked { .. }), "{error:?}");
        let path = dir.path().to_owned();
        let waiter = std::thread::spawn(move || lock(&path).is_ok());
        drop(held);
        assert!(waiter.join().unwrap());
    }
}
