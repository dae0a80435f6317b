//! Making sure that a directory lies on a BPF file system.

use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use tracing::info;

use crate::Error;
use crate::error::file;

/// Where every distribution with systemd mounts it.
const CUSTOMARY: &str = "/sys/fs/bpf";

/// Whether what exists of `dir` lies on a BPF file system.
pub(crate) fn is_bpffs(dir: &Path) -> Result<bool, Error> {
    let existing = dir
        .ancestors()
        .find(|a| a.exists())
        .unwrap_or(Path::new("/"));
    let stat = statfs(existing)
        .map_err(io::Error::from)
        .map_err(file("stat", existing))?;
    Ok(stat.filesystem_type() == BPF_FS_MAGIC)
}

/// Mounts the BPF file system at its customary place when `dir` is to be there and it
/// is not; elsewhere that is the administrator's decision.
pub(crate) fn ensure(dir: &Path) -> Result<(), Error> {
    if is_bpffs(dir)? {
        return Ok(());
    }
    if !dir.starts_with(CUSTOMARY) || !Path::new(CUSTOMARY).is_dir() {
        return Err(Error::NotBpffs {
            path: dir.to_owned(),
        });
    }
    mount(
        Some("bpf"),
        CUSTOMARY,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(io::Error::from)
    .map_err(file("mount BPF file system at", CUSTOMARY))?;
    info!(path = CUSTOMARY, "Mounted the BPF file system");
    Ok(())
}
