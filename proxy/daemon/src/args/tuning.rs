//! Flags about timing and conntrack, with kube-proxy's names and meaning.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{BadConfig, parse};
use crate::config::{ConntrackConfig, SyncConfig};

/// How often the kernel is written, and how it tracks connections.
#[derive(Clone, Debug, Args)]
pub struct TuningArgs {
    /// Shortest pause between two writes of rules
    ///
    /// If not given, as long as the last one took, from 50ms to 1s.
    #[arg(
        long,
        env = "SEAWAY_IPTABLES_MIN_SYNC_PERIOD",
        value_name = "TIME",
        value_parser = parse::duration
    )]
    pub iptables_min_sync_period: Option<Duration>,
    /// Longest pause before a failed write is tried again
    ///
    /// What waits for twice as long makes /healthz fail.
    #[arg(
        long,
        env = "SEAWAY_IPTABLES_SYNC_PERIOD",
        value_name = "TIME",
        value_parser = parse::duration,
        default_value = "30s"
    )]
    pub iptables_sync_period: Duration,
    /// Bit of a packet's mark that asks for masquerade (iptables)
    #[arg(
        long,
        env = "SEAWAY_IPTABLES_MASQUERADE_BIT",
        value_name = "BIT",
        value_parser = parse::masquerade_bit,
        default_value = "14"
    )]
    pub iptables_masquerade_bit: u8,
    /// Connections that the kernel tracks, per CPU; 0 leaves its own limit (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_MAX_PER_CORE",
        value_name = "NUMBER",
        default_value_t = ConntrackConfig::default().max_per_core
    )]
    pub conntrack_max_per_core: u32,
    /// At least so many, unless --conntrack-max-per-core is 0
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_MIN",
        value_name = "NUMBER",
        default_value_t = ConntrackConfig::default().min
    )]
    pub conntrack_min: u32,
    /// How long an idle TCP connection is tracked; 0s leaves the kernel's value (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_TCP_TIMEOUT_ESTABLISHED",
        value_name = "TIME",
        value_parser = parse::duration,
        default_value = "24h"
    )]
    pub conntrack_tcp_timeout_established: Duration,
    /// How long one that the other side has closed; 0s leaves the kernel's value (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_TCP_TIMEOUT_CLOSE_WAIT",
        value_name = "TIME",
        value_parser = parse::duration,
        default_value = "1h"
    )]
    pub conntrack_tcp_timeout_close_wait: Duration,
    /// Whether TCP packets outside of the window are taken for good ones (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_TCP_BE_LIBERAL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub conntrack_tcp_be_liberal: bool,
    /// How long a UDP flow without an answer is tracked; 0s leaves the kernel's value (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_UDP_TIMEOUT",
        value_name = "TIME",
        value_parser = parse::duration,
        default_value = "0s"
    )]
    pub conntrack_udp_timeout: Duration,
    /// How long one with; 0s leaves the kernel's value (iptables)
    #[arg(
        long,
        env = "SEAWAY_CONNTRACK_UDP_TIMEOUT_STREAM",
        value_name = "TIME",
        value_parser = parse::duration,
        default_value = "0s"
    )]
    pub conntrack_udp_timeout_stream: Duration,
    /// Whether an address for /healthz or /metrics that is taken ends the program
    ///
    /// If not, it is tried again every 5 s.
    #[arg(
        long,
        env = "SEAWAY_BIND_ADDRESS_HARD_FAIL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub bind_address_hard_fail: bool,
    /// How the kernel is to choose when memory is short: -1000 (never) to 1000; as the program
    /// was started if not given
    #[arg(
        long,
        env = "SEAWAY_OOM_SCORE_ADJ",
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = parse::oom_score_adj
    )]
    pub oom_score_adj: Option<i16>,
}

impl TuningArgs {
    pub(super) fn sync(&self) -> Result<SyncConfig, BadConfig> {
        let (period, min_period) = (self.iptables_sync_period, self.iptables_min_sync_period);
        if period.is_zero() || min_period.is_some_and(|min| min > period) {
            return Err(BadConfig::Periods(period));
        }
        Ok(SyncConfig { min_period, period })
    }

    pub(super) fn conntrack(&self) -> ConntrackConfig {
        ConntrackConfig {
            max_per_core: self.conntrack_max_per_core,
            min: self.conntrack_min,
            tcp_established_timeout: self.conntrack_tcp_timeout_established,
            tcp_close_wait_timeout: self.conntrack_tcp_timeout_close_wait,
            tcp_be_liberal: self.conntrack_tcp_be_liberal,
            udp_timeout: self.conntrack_udp_timeout,
            udp_stream_timeout: self.conntrack_udp_timeout_stream,
        }
    }
}
