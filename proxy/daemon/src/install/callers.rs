//! Who calls the plugin, or is going to: as long as there is somebody, its binary stays.
//!
//! A runtime that is told of a plugin which is not there can neither start pods nor end them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use seaway_podnet::ConfFile;
use tokio::net::UnixStream;

use super::files;
use crate::explain::SOCKET;

/// Somebody calls the plugin, or will.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StillCalled {
    /// The runtime goes by the conf.
    #[error("{} tells the runtime to call the CNI plugin", conf.display())]
    Conf {
        /// Ours.
        conf: PathBuf,
    },
    /// It writes the conf again within seconds.
    #[error("the daemon that listens at {} would write the CNI conf again", socket.display())]
    Daemon {
        /// Where `explain` and `status` ask it.
        socket: PathBuf,
    },
}

/// # Errors
/// There is such a one, or that cannot be told.
pub(crate) async fn require_none(conf_dir: &Path, run_dir: &Path) -> anyhow::Result<()> {
    let conf = conf_dir.join(ConfFile::NAME);
    if files::is_there(&conf)? {
        return Err(StillCalled::Conf { conf }.into());
    }
    if daemon_runs(run_dir).await {
        let socket = run_dir.join(SOCKET);
        return Err(StillCalled::Daemon { socket }.into());
    }
    Ok(())
}

/// Whether a daemon listens. A dead one may have left its socket, but nobody is behind that.
pub(crate) async fn daemon_runs(run_dir: &Path) -> bool {
    match UnixStream::connect(run_dir.join(SOCKET)).await {
        Ok(_) => true,
        // So many are waiting to be heard that there is no room.
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
