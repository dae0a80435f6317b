//! What can go wrong, and what to do then.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use seaway_proxy_core::backend::{BackendError, Retry};

/// The eBPF data plane could not be set up, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The build was told to leave the programs out.
    #[error("load eBPF programs: this binary was built with SEAWAY_EBPF_SKIP and has none")]
    NotBuilt,
    /// Pins need a bpffs and the path is on another file system.
    #[error(
        "use {path} for pins: it is not on a BPF file system; mount one with \
         `mount -t bpf bpf DIR` and name a directory below it"
    )]
    NotBpffs {
        /// The configured directory.
        path: PathBuf,
    },
    /// Another process uses the pins.
    #[error("lock {path}: another process manages these pins")]
    Locked {
        /// The configured directory.
        path: PathBuf,
    },
    /// No cgroup2 hierarchy is mounted.
    #[error("find the cgroup2 root: no cgroup2 file system is mounted")]
    NoCgroup2,
    /// Only a part of the hierarchy is visible, as in a private cgroup namespace.
    #[error(
        "find the cgroup2 root: {path} is only a part of the hierarchy; \
         name the cgroup whose sockets are to be served"
    )]
    NotCgroupRoot {
        /// Where cgroup2 is mounted.
        path: PathBuf,
    },
    /// The configured cgroup is something else.
    #[error("use {path} as cgroup root: it is not a directory of a cgroup2 file system")]
    NotCgroup2 {
        /// The configured directory.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{operation} {path}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The object or its maps were refused.
    #[error("load eBPF object")]
    Object {
        /// Why it failed.
        source: Box<EbpfError>,
    },
    /// The object lacks something that the loader expects.
    #[error("find {name} in eBPF object")]
    Missing {
        /// Name of the map or program.
        name: &'static str,
    },
    /// The kernel refused a program; the source holds the verifier's log.
    #[error("load eBPF program {name}")]
    Program {
        /// Name of the program.
        name: &'static str,
        /// Why it failed.
        source: Box<ProgramError>,
    },
    /// A program could not be attached.
    #[error("attach eBPF program {name} to {cgroup}")]
    Attach {
        /// Name of the program.
        name: &'static str,
        /// The cgroup.
        cgroup: PathBuf,
        /// Why it failed.
        source: Box<ProgramError>,
    },
    /// A system call on a link failed.
    #[error("{operation} of eBPF link {name}")]
    Link {
        /// What was tried.
        operation: &'static str,
        /// Name of the link, which is that of its program.
        name: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A map could not be read or written.
    #[error("{operation} map {map}")]
    Map {
        /// What was tried.
        operation: &'static str,
        /// Name of the map.
        map: &'static str,
        /// Why it failed.
        source: Box<MapError>,
    },
    /// Some services could not be written; the others were.
    #[error("program {failed} of {total} changed map entries, first {first}")]
    Partial {
        /// Entries that were not written.
        failed: usize,
        /// Entries that were to be written.
        total: usize,
        /// The first of them.
        first: String,
        /// Why the first one failed.
        source: Box<MapError>,
    },
    /// The reader of log lines could not be set up.
    #[error("read log lines of eBPF programs")]
    Logs {
        /// Why it failed.
        source: Box<aya_log::Error>,
    },
    /// The data plane was removed and cannot be written any more.
    #[error("program services: the eBPF data plane has been removed")]
    Removed,
}

impl Error {
    /// What the caller should do next.
    pub fn retry(&self) -> Retry {
        match self {
            Self::NotBuilt
            | Self::NotBpffs { .. }
            | Self::NoCgroup2
            | Self::NotCgroupRoot { .. }
            | Self::NotCgroup2 { .. }
            | Self::Object { .. }
            | Self::Missing { .. }
            | Self::Program { .. }
            | Self::Removed => Retry::Never,
            Self::Locked { .. }
            | Self::File { .. }
            | Self::Attach { .. }
            | Self::Link { .. }
            | Self::Map { .. }
            | Self::Partial { .. }
            | Self::Logs { .. } => Retry::Backoff,
        }
    }

    fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        match self {
            Self::File { source, .. } | Self::Link { source, .. } => Some(source.into()),
            Self::Object { source } => Some(source.into()),
            Self::Program { source, .. } | Self::Attach { source, .. } => Some(source.into()),
            Self::Map { source, .. } | Self::Partial { source, .. } => Some(source.into()),
            Self::Logs { source } => Some(source.into()),
            _ => None,
        }
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        let this = Self::new(error.to_string(), error.retry());
        match error.into_source() {
            Some(source) => this.because(source),
            None => this,
        }
    }
}

/// For `map_err`.
pub(crate) fn file(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::File {
        operation,
        path,
        source,
    }
}
