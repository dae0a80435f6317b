//! Where things live that are built once and outlast the work tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};

/// The cache folder: `SEAWAY_CACHE`, else `$XDG_CACHE_HOME/seaway`, else
/// `~/.cache/seaway`. It is created when absent.
pub(crate) fn dir() -> Result<PathBuf> {
    let dir = seaway_testbed::cache_dir();
    fs::create_dir_all(dir.join("bin"))
        .with_context(|| format!("create the cache folder {}", dir.display()))?;
    fs::create_dir_all(dir.join("stamps"))
        .with_context(|| format!("create the cache folder {}", dir.display()))?;
    Ok(dir)
}

/// Keeps two runs of `xtask` from building the same thing at once; released on drop.
pub(crate) fn lock() -> Result<Flock<File>> {
    let path = dir()?.join("lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("lock {}", path.display()))
}

/// The root of the work tree.
pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate is one folder below the root")
        .to_path_buf()
}
