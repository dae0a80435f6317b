//! Log lines of the programs.
#![allow(
    unsafe_code,
    reason = "tokio has no safe way to poll a foreign file descriptor"
)]

use std::fmt;
use std::io;

use aya_log::EbpfLogger;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::level_filters::LevelFilter;
use tracing::{debug, error, info, trace, warn};

use crate::Error;

/// Name of the variable that aya-log-ebpf compares levels with. The programs are
/// verified with its value, so statements above the level cost nothing at run time.
pub(crate) const LEVEL: &str = aya_log::LEVEL;

/// `aya_log_ebpf::Level` of a filter; 0 is below all.
pub(crate) fn level(filter: LevelFilter) -> u8 {
    match filter.into_level() {
        None => 0,
        Some(tracing::Level::ERROR) => 1,
        Some(tracing::Level::WARN) => 2,
        Some(tracing::Level::INFO) => 3,
        Some(tracing::Level::DEBUG) => 4,
        Some(tracing::Level::TRACE) => 5,
    }
}

/// Turns log lines of the programs into `tracing` events with target `seaway_ebpf`.
///
/// Needs no bridge from the `log` crate.
pub struct EbpfLogs {
    logger: EbpfLogger<ToTracing>,
}

impl fmt::Debug for EbpfLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfLogs").finish_non_exhaustive()
    }
}

impl EbpfLogs {
    pub(crate) fn take(object: &mut aya::Ebpf) -> Result<Self, Error> {
        let logger =
            EbpfLogger::init_with_logger(object, ToTracing).map_err(|source| Error::Logs {
                source: Box::new(source),
            })?;
        Ok(Self { logger })
    }

    /// Runs until the returned future is dropped or the ring buffer cannot be polled.
    ///
    /// # Errors
    ///
    /// When the runtime cannot poll the ring buffer.
    pub async fn run(self) -> io::Result<()> {
        // SAFETY: the logger owns its ring buffer, whose descriptor neither changes nor
        // closes before the logger is dropped, and it is not taken out of the AsyncFd.
        let fd = unsafe { AsyncFd::register_with_interest(self.logger, Interest::READABLE) };
        let mut fd = fd?;
        loop {
            let mut ready = fd.readable_mut().await?;
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
    }
}

/// aya-log speaks to a `log::Log`.
struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // tracing needs the level of an event at compile time.
        macro_rules! event {
            ($level:ident) => {
                $level!(
                    target: "seaway_ebpf",
                    line = %record.args(),
                    module = record.module_path(),
                    "Message from an eBPF program"
                )
            };
        }
        match record.level() {
            log::Level::Error => event!(error),
            log::Level::Warn => event!(warn),
            log::Level::Info => event!(info),
            log::Level::Debug => event!(debug),
            log::Level::Trace => event!(trace),
        }
    }

    fn flush(&self) {}
}
