//! The CNI plugin's binary in the folder where the runtime looks for it.
//!
//! ```text
//! lock folder ► remove what killed runs left ► write, chmod, fsync .seaway-install-*.tmp
//!             ► ask it for its VERSION ► rename over seaway-cni ► fsync folder
//! ```
//!
//! The runtime calls the binary at any moment. It never meets a part of it, nor one
//! that is open for writing ("text file busy"), nor one that does not work here; a
//! call that has begun goes on with the old one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::time::{Instant, sleep};

use super::files::{self, FileError, failed};
use super::probe::{ProbeError, ask_version};

/// The plugin's name in conf and folder.
pub(crate) const NAME: &str = "seaway-cni";
/// The plugin that containerd calls for every pod before any other.
const LOOPBACK: &str = "loopback";
const MODE: u32 = 0o755;
/// An install takes well under a second, so this is one that hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The plugin is not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    /// A step with a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was to be installed, or is, does not work here.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Somebody else is at it.
    #[error("another install has held {} for more than {} s", dir.display(), LOCK_PATIENCE.as_secs())]
    Locked {
        /// The folder.
        dir: PathBuf,
    },
}

/// What is called `loopback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loopback {
    /// Nothing.
    Missing,
    /// A link to our plugin.
    Ours,
    /// Somebody else's.
    Foreign,
}

/// Makes the binary in `dir` the same as `source`; tells whether it wrote.
///
/// # Errors
/// The first step that failed; what was installed before is so still.
pub(crate) async fn install(source: &Path, dir: &Path) -> Result<bool, InstallError> {
    let content = fs::read(source).map_err(failed("read the CNI plugin", source))?;
    fs::create_dir_all(dir).map_err(failed("create directory", dir))?;
    let lock = lock(dir).await?;
    files::remove_half_written(dir)?;
    let path = dir.join(NAME);
    let written = !is_installed(&path, &content)?;
    if written {
        let file = files::write_temporary(dir, &content, MODE)?;
        ask_version(&file, source).await?;
        files::rename(file, &path)?;
    } else {
        ask_version(&path, &path).await?;
    }
    drop(lock);
    Ok(written)
}

/// One install at a time. The lock is the folder's own, so no file is left of it.
async fn lock(dir: &Path) -> Result<Flock<File>, InstallError> {
    let failed_lock = |errno: Errno| failed("lock directory", dir)(errno.into());
    let mut file = File::open(dir).map_err(failed("open directory", dir))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EWOULDBLOCK)) => file,
            Err((_, errno)) => return Err(failed_lock(errno).into()),
        };
        if Instant::now() > deadline {
            return Err(InstallError::Locked { dir: dir.into() });
        }
        sleep(LOCK_PAUSE).await;
    }
}

/// A link is no installed binary: what it leads to may change without us.
fn is_installed(path: &Path, content: &[u8]) -> Result<bool, FileError> {
    let Some(meta) = look(path)? else {
        return Ok(false);
    };
    let same_kind = meta.is_file() && meta.permissions().mode() & 0o7777 == MODE;
    if !same_kind || meta.len() != content.len() as u64 {
        return Ok(false);
    }
    let old = fs::read(path).map_err(failed("read", path))?;
    Ok(old == content)
}

/// What is there itself, not what it links to.
fn look(path: &Path) -> Result<Option<fs::Metadata>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

/// What is called `loopback` in `dir`.
pub(crate) fn loopback(dir: &Path) -> Result<Loopback, FileError> {
    let path = dir.join(LOOPBACK);
    let Some(meta) = look(&path)? else {
        return Ok(Loopback::Missing);
    };
    if !meta.is_symlink() {
        return Ok(Loopback::Foreign);
    }
    let target = fs::read_link(&path).map_err(failed("read link", &path))?;
    if target == Path::new(NAME) {
        Ok(Loopback::Ours)
    } else {
        Ok(Loopback::Foreign)
    }
}

/// Links `loopback` to our plugin where nobody has one; tells what there was.
pub(crate) fn ensure_loopback(dir: &Path) -> Result<Loopback, FileError> {
    let there = loopback(dir)?;
    if there == Loopback::Missing {
        let path = dir.join(LOOPBACK);
        // Relative: the folder may have another name where the runtime runs.
        symlink(NAME, &path).map_err(failed("create link", &path))?;
        files::sync_folder_of(&path)?;
    }
    Ok(there)
}

/// Whether the plugin is there.
pub(crate) fn is_there(dir: &Path) -> Result<bool, FileError> {
    files::is_there(&dir.join(NAME))
}

/// Removes the plugin, and `loopback` if it is ours; tells whether anything was there.
pub(crate) fn remove(dir: &Path) -> Result<bool, FileError> {
    files::remove_half_written(dir)?;
    let mut any = false;
    if loopback(dir)? == Loopback::Ours {
        any |= files::remove(&dir.join(LOOPBACK))?;
    }
    any |= files::remove(&dir.join(NAME))?;
    Ok(any)
}
