//! The kernel's connection tracking as kube-proxy sets it: how many connections, for how long.
//!
//! Only for the iptables backend, whose translations live there. A setting is written when it
//! differs and never looked at again: whoever changes it later means it. A failure is told and
//! is no reason to leave the node without Services.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::unistd::{SysconfVar, sysconf};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::config::ConntrackConfig;

#[cfg(test)]
mod tests;

/// kube-proxy's upper bound of what it computes.
const MOST: u64 = 1 << 20;
/// Connections per bucket of the hash table, by which kube-proxy sizes it.
const PER_BUCKET: u64 = 4;

const MAX: &str = "nf_conntrack_max";
const ESTABLISHED: &str = "nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT: &str = "nf_conntrack_tcp_timeout_close_wait";
const BE_LIBERAL: &str = "nf_conntrack_tcp_be_liberal";
const UDP: &str = "nf_conntrack_udp_timeout";
const UDP_STREAM: &str = "nf_conntrack_udp_timeout_stream";

/// Where the kernel shows the settings.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    sysctls: PathBuf,
    buckets: PathBuf,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            sysctls: "/proc/sys/net/netfilter".into(),
            buckets: "/sys/module/nf_conntrack/parameters/hashsize".into(),
        }
    }
}

/// What `nf_conntrack_max` is to be, on a node with `cpus`; nothing if it is to be left alone.
fn most_connections(config: &ConntrackConfig, cpus: u64) -> Option<u64> {
    if config.max_per_core == 0 {
        return None;
    }
    let scaled = u64::from(config.max_per_core).saturating_mul(cpus);
    // The bound goes before the minimum, as in kube-proxy.
    Some(if scaled > MOST {
        MOST
    } else {
        scaled.max(u64::from(config.min))
    })
}

/// What is to be set, in order; zero leaves the kernel's own value.
fn wanted(config: &ConntrackConfig, cpus: u64) -> Vec<(&'static str, u64)> {
    let mut wanted = Vec::new();
    wanted.extend(most_connections(config, cpus).map(|max| (MAX, max)));
    for (name, timeout) in [
        (ESTABLISHED, config.tcp_established_timeout),
        (CLOSE_WAIT, config.tcp_close_wait_timeout),
        (UDP, config.udp_timeout),
        (UDP_STREAM, config.udp_stream_timeout),
    ] {
        if !timeout.is_zero() {
            wanted.push((name, timeout.as_secs()));
        }
    }
    if config.tcp_be_liberal {
        wanted.push((BE_LIBERAL, 1));
    }
    wanted
}

/// What became of a look at all settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Each is as wanted, or has been told to be impossible.
    All,
    /// The kernel has not loaded its connection tracking yet; the first rules make it.
    NotLoaded,
}

impl Knobs {
    /// Brings the settings to what `config` says, as far as that works.
    pub(crate) fn apply(&self, config: &ConntrackConfig) -> Applied {
        self.apply_on(config, cpus())
    }

    fn apply_on(&self, config: &ConntrackConfig, cpus: u64) -> Applied {
        let mut applied = Applied::All;
        for (name, value) in wanted(config, cpus) {
            match set(&self.sysctls.join(name), value, |have| have != value) {
                Ok(Some(before)) => info!(setting = name, before, value, "Set conntrack"),
                Ok(None) => debug!(setting = name, value, "Conntrack is as wanted"),
                Err(error) if error.kind() == ErrorKind::NotFound => applied = Applied::NotLoaded,
                Err(error) => warn!(setting = name, value, %error, "Cannot set conntrack"),
            }
            if name == MAX {
                self.grow_buckets(value / PER_BUCKET);
            }
        }
        applied
    }

    /// A larger table is never made smaller.
    fn grow_buckets(&self, value: u64) {
        match set(&self.buckets, value, |have| have < value) {
            Ok(Some(before)) => info!(setting = "hashsize", before, value, "Set conntrack"),
            Ok(None) => {}
            // Told by the sysctl of the same module.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => warn!(setting = "hashsize", value, %error, "Cannot set conntrack"),
        }
    }

    /// Whether the kernel takes TCP packets outside of the window for good ones. Those that
    /// it cannot place need not be dropped then.
    pub(crate) fn be_liberal(&self) -> bool {
        read(&self.sysctls.join(BE_LIBERAL)).is_ok_and(|value| value != 0)
    }
}

/// Applies what could not be before the first rules had the kernel load its module.
pub(crate) async fn apply_when_loaded(
    before: Applied,
    knobs: Knobs,
    config: ConntrackConfig,
    mut synced: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    if before == Applied::All {
        return;
    }
    let ready = synced.wait_for(|synced| *synced);
    // A closed channel means that the loop has ended, so this has, too.
    if let Some(Ok(_)) = stop.run_until_cancelled(ready).await
        && knobs.apply(&config) == Applied::NotLoaded
    {
        warn!("This kernel lacks some settings of conntrack");
    }
}

/// Writes where `differs` says so; gives what was there before a write.
fn set(path: &Path, value: u64, differs: impl Fn(u64) -> bool) -> io::Result<Option<u64>> {
    let have = read(path)?;
    if !differs(have) {
        return Ok(None);
    }
    fs::write(path, value.to_string())?;
    Ok(Some(have))
}

fn read(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(io::Error::other)
}

/// Those that are online, whatever this process may use of them.
fn cpus() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|n| u64::try_from(n).ok()).unwrap_or(1)
}
