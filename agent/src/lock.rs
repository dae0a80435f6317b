//! One agent for each run directory: two would end each other's pods.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Name of the lock in the run directory.
const LOCK: &str = "agent.lock";

/// The directory is ours until this is dropped, or the process is gone.
#[derive(Debug)]
pub struct RunDirLock {
    _file: File,
}

/// The directory cannot be ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("another agent runs with --run-dir {}", run_dir.display())]
    Taken {
        /// Which.
        run_dir: PathBuf,
    },
    /// It cannot be used.
    #[error("lock {}", path.display())]
    Failed {
        /// The lock's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl RunDirLock {
    /// Takes `run_dir`, which is made if it is not there.
    pub fn take(run_dir: &Path) -> Result<Self, LockError> {
        let path = run_dir.join(LOCK);
        let open = || {
            std::fs::create_dir_all(run_dir)?;
            File::create(&path)
        };
        let locked = open()
            .map_err(TryLockError::Error)
            .and_then(|file| file.try_lock().map(|()| file));
        match locked {
            Ok(file) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Taken {
                run_dir: run_dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(LockError::Failed { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path().join("run");
        let first = RunDirLock::take(&run_dir).unwrap();
        let error = RunDirLock::take(&run_dir).unwrap_err().to_string();
        assert!(error.contains("another agent runs"), "{error}");
        assert!(error.contains(run_dir.to_str().unwrap()), "{error}");
        drop(first);
        RunDirLock::take(&run_dir).unwrap();
    }
}
