//! Kernel settings in a container.
//!
//! A runtime mounts `/proc/sys` read-only for every container that is not privileged. What
//! the pod network and the backends switch below `/proc/sys/net` is the network namespace's,
//! which is the node's; so the mount, the container's own, is all that stands between.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};
use tracing::{info, warn};

const PROC_SYS: &str = "/proc/sys";

/// Makes `/proc/sys` writable in this mount namespace, unless it is.
///
/// A failure is told and no more: what cannot be switched later says so itself, and where
/// every setting is right already nothing is missing.
pub(crate) fn make_writable() {
    match is_read_only(Path::new(PROC_SYS)) {
        Ok(false) => {}
        Ok(true) => match remount() {
            Ok(()) => info!("Made /proc/sys writable in this container"),
            Err(errno) => warn!(
                error = errno.desc(),
                "Cannot make /proc/sys writable; it takes CAP_SYS_ADMIN and no AppArmor profile"
            ),
        },
        Err(errno) => warn!(error = errno.desc(), "Cannot look at /proc/sys"),
    }
}

fn is_read_only(path: &Path) -> nix::Result<bool> {
    Ok(statvfs(path)?.flags().contains(FsFlags::ST_RDONLY))
}

/// The flags besides are those that runtimes set, so that they stay.
fn remount() -> nix::Result<()> {
    let flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC;
    mount(None::<&str>, PROC_SYS, None::<&str>, flags, None::<&str>)
}
