//! Who has to wait for whom: one byte of a file that a process has locked.
//!
//! Open file description locks (`F_OFD_SETLK`, fcntl(2), Linux 3.15) end with the process, and
//! different bytes of one file have nothing to do with each other.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, c_short};
use nix::poll::ppoll;
use nix::sys::time::{TimeSpec, TimeValLike as _};
use sha2::{Digest as _, Sha256};

use super::{IpamError, Key, file};

/// The lock over the records is held for a listing and two renames, so this is
/// thirty thousand times longer than even a burst of pods needs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks before a wait, and the pauses between them: mostly the lock is free again
/// sooner than a thread that waits for it can be made.
const PAUSES_US: [i64; 6] = [50, 100, 200, 400, 800, 1600];

/// What is locked while the value and the process live.
#[derive(Debug)]
pub struct Locked {
    _file: File,
}

/// Waits for the lock over a network's records.
pub(super) fn lock(network_dir: &Path) -> Result<Locked, IpamError> {
    let path = network_dir.join("lock");
    Place { path, byte: 0 }.lock_within(PATIENCE)
}

/// Waits for other calls for the attachment.
pub(super) fn lock_attachment(network_dir: &Path, key: &Key) -> Result<Locked, IpamError> {
    let path = attachments(network_dir);
    let byte = byte_of(key);
    Place { path, byte }.lock_within(PATIENCE)
}

/// Locks those attachments for which no call is under way; waits for none.
pub(super) fn lock_idle<'a>(
    network_dir: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
) -> Result<(BTreeSet<Key>, Locked), IpamError> {
    let path = attachments(network_dir);
    let file_of_all = open(&path)?;
    let mut kept = BTreeSet::new();
    for key in keys {
        match set(&file_of_all, byte_of(key), false) {
            Ok(()) => {
                kept.insert(key.clone());
            }
            Err(Errno::EAGAIN) => {}
            Err(errno) => return Err(file("lock", &path)(errno.into())),
        }
    }
    Ok((kept, Locked { _file: file_of_all }))
}

fn attachments(network_dir: &Path) -> PathBuf {
    network_dir.join("busy")
}

/// Two attachments will not have the same of so many; if they do, they wait for each other.
fn byte_of(key: &Key) -> i64 {
    let digest = Sha256::digest(format!("{}:{}", key.container_id, key.ifname));
    let first = digest.first_chunk().expect("32 bytes have 8");
    i64::from_be_bytes(*first) & (i64::MAX >> 1)
}

fn open(path: &Path) -> Result<File, IpamError> {
    let open = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    open.map_err(file("open", path))
}

/// `EAGAIN`: it is locked, and this is not to wait.
fn set(file: &File, byte: i64, wait: bool) -> Result<(), Errno> {
    let range = libc::flock {
        l_type: c_short::try_from(libc::F_WRLCK).expect("it is 1"),
        l_whence: c_short::try_from(libc::SEEK_SET).expect("it is 0"),
        l_start: byte,
        l_len: 1,
        l_pid: 0, // what the kernel demands for this kind of lock
    };
    let request = if wait {
        FcntlArg::F_OFD_SETLKW(&range)
    } else {
        FcntlArg::F_OFD_SETLK(&range)
    };
    fcntl(file, request).map(drop)
}

struct Place {
    path: PathBuf,
    byte: i64,
}

impl Place {
    fn lock_within(self, patience: Duration) -> Result<Locked, IpamError> {
        let Self { path, byte } = self;
        let file_of_it = open(&path)?;
        let failed = |errno: Errno| file("lock", &path)(errno.into());
        for pause in PAUSES_US {
            match set(&file_of_it, byte, false) {
                Ok(()) => return Ok(Locked { _file: file_of_it }),
                Err(Errno::EAGAIN) => {}
                Err(errno) => return Err(failed(errno)),
            }
            // Nothing to wait for but the time; a signal that ends it early is fine.
            ppoll(&mut [], Some(TimeSpec::microseconds(pause)), None).ok();
        }
        // fcntl(2) knows no deadline; a thread that waits can be left behind.
        let (sender, receiver) = mpsc::sync_channel(1);
        let waiter = std::thread::Builder::new().spawn(move || {
            let locked = set(&file_of_it, byte, true).map(|()| Locked { _file: file_of_it });
            // Nobody may be waiting any more: then the lock is let go at once.
            drop(sender.send(locked));
        });
        waiter.map_err(file("wait for", &path))?;
        match receiver.recv_timeout(patience) {
            Ok(locked) => locked.map_err(failed),
            Err(_late) => Err(IpamError::Locked {
                path,
                seconds: patience.as_secs(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container_id: &str) -> Key {
        Key {
            container_id: container_id.to_owned(),
            ifname: "eth0".to_owned(),
        }
    }

    #[test]
    fn case_52_a_lock_that_is_held_is_waited_for_only_so_long() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let path = dir.path().join("lock");
        let place = Place { path, byte: 0 };
        let error = place.lock_within(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, IpamError::Locked { .. }), "{error:?}");
        let path = dir.path().to_owned();
        let waiter = std::thread::spawn(move || lock(&path).is_ok());
        drop(held);
        assert!(waiter.join().unwrap());
    }

    /// A call that hangs keeps nobody else's pod waiting.
    #[test]
    fn no_attachment_waits_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let keys: Vec<Key> = (0..200).map(|n| key(&format!("c{n}"))).collect();
        let held = lock_attachment(dir.path(), &keys[0]).unwrap();
        let (free, locks) = lock_idle(dir.path(), &keys).unwrap();
        assert_eq!(free.len(), 199);
        assert!(!free.contains(&keys[0]));
        drop(locks);
        for key in &keys[1..] {
            lock_attachment(dir.path(), key).unwrap();
        }
        drop(held);
        lock_attachment(dir.path(), &keys[0]).unwrap();
    }
}
