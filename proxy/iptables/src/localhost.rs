//! NodePorts on 127.0.0.1.
//!
//! They need a sysctl of the whole node. That it was us who set it is remembered
//! in a file, so that whoever no longer serves them sets it back, and leaves
//! alone what an operator has set.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::{debug, info, warn};

#[cfg(test)]
mod tests;

/// Whether packets with a loopback address may leave by, or come in from, a
/// device: `Documentation/networking/ip-sysctl.rst`. Of the network namespace of
/// the calling thread.
const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
/// The file in the run directory.
const MEMORY: &str = "route-localnet-is-ours";

/// The sysctl, and the memory of who set it.
#[derive(Debug)]
pub(crate) struct Localhost {
    sysctl: PathBuf,
    memory: PathBuf,
    /// Whether it has been told that the sysctl cannot be set, which is tried in each round.
    told: bool,
    /// Writes the sysctl.
    write: fn(&Path, &str) -> io::Result<()>,
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, value)
}

impl Localhost {
    pub(crate) fn new(run_dir: &Path) -> Self {
        Self {
            sysctl: ROUTE_LOCALNET.into(),
            memory: run_dir.join(MEMORY),
            told: false,
            write,
        }
    }

    /// Lets connections to 127.0.0.1 be translated to endpoints elsewhere. A failure
    /// costs just these connections, so it is told and not returned.
    pub(crate) fn open(&mut self) {
        let sysctl = self.sysctl.display();
        let opened = self.try_open();
        let told = std::mem::replace(&mut self.told, opened.is_err());
        match opened {
            Ok(false) => {}
            Ok(true) => info!(%sysctl, "Set to 1 for NodePorts on 127.0.0.1"),
            Err(error) if told => debug!(%sysctl, %error, "Still cannot set to 1"),
            Err(error) => {
                warn!(%sysctl, %error, "Cannot set to 1, NodePorts do not work on 127.0.0.1");
            }
        }
    }

    fn try_open(&self) -> io::Result<bool> {
        if self.is("1")? {
            return Ok(false);
        }
        // First, so that a crash in between leaves nothing that nobody undoes.
        if let Some(dir) = self.memory.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&self.memory, "")?;
        let written = (self.write)(&self.sysctl, "1");
        if written.is_err()
            && let Err(error) = fs::remove_file(&self.memory)
        {
            debug!(memory = %self.memory.display(), %error, "Cannot forget what was not set");
        }
        written.map(|()| true)
    }

    /// Undoes what [`open`](Self::open) did, in this run or an earlier one; tells whether
    /// there was anything to undo.
    ///
    /// # Errors
    /// The sysctl stays as it was; another try may work.
    pub(crate) fn close(&self) -> io::Result<bool> {
        if !self.memory.try_exists()? {
            return Ok(false);
        }
        // Where it cannot be written, it may never have been.
        if !self.is("0")? {
            (self.write)(&self.sysctl, "0")?;
            info!(sysctl = %self.sysctl.display(), "Set back to 0");
        }
        fs::remove_file(&self.memory).map(|()| true)
    }

    fn is(&self, value: &str) -> io::Result<bool> {
        fs::read_to_string(&self.sysctl).map(|found| found.trim() == value)
    }
}
