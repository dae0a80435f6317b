//! Flags about the CNI plugin, as the daemon calls it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::absolute;
use crate::config::UpkeepConfig;

/// How the CNI plugin is called.
#[derive(Clone, Debug, Args)]
pub struct UpkeepArgs {
    /// The CNI plugin's executable
    ///
    /// If not given, seaway-cni beside this program, else /opt/cni/bin/seaway-cni. It is
    /// called to write hostPorts again that others have flushed, and to release what dead
    /// pods have left.
    #[arg(long, env = "SEAWAY_CNI_BIN", value_name = "FILE", value_parser = absolute)]
    pub cni_bin: Option<PathBuf>,
    /// Between two looks for what dead pods have left, of which it takes two
    #[arg(
        long,
        env = "SEAWAY_SWEEP_INTERVAL",
        value_name = "SECONDS",
        default_value_t = UpkeepConfig::default().sweep_interval.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub sweep_interval: u64,
}

impl UpkeepArgs {
    pub(super) fn config(&self) -> UpkeepConfig {
        UpkeepConfig {
            cni_bin: self.cni_bin.clone(),
            sweep_interval: Duration::from_secs(self.sweep_interval),
        }
    }
}
