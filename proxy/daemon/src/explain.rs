//! `explain` and `status`: what this node does, for a person who wonders.
//!
//! ```text
//! explain, status ── RUN_DIR/proxy.sock, one line each way ──► serve ─► Desk ─► SyncLoop
//!    └─ no daemon: alone ─► lists of the API server, the kernel
//! ```
//!
//! The daemon's own loop answers what is about the kernel, between two rounds, so nothing
//! changes while it looks. Whoever asks changes nothing; what an answer finds altered in the
//! kernel, the daemon repairs after it. `status` asks the loop for one thing alone, whether
//! the kernel is as it should be; the rest is known without it, also while it is busy.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Context;
use kube::Client;
use seaway_proxy_core::explain::Target;
use serde::{Deserialize, Serialize};

use crate::args::{ExplainArgs, Output, StatusArgs};
use crate::config::Config;

mod alone;
mod answer;
mod client;
mod desk;
mod look;
pub(crate) mod server;
mod status;
#[cfg(test)]
mod tests;

use answer::Report;
pub(crate) use answer::{Facts, inspect, report};
#[cfg(test)]
pub(crate) use desk::Bell;
pub(crate) use desk::{AddressQuestion, Desk, GoodRound, Question};
pub(crate) use look::{Look, look};

/// Where a daemon listens below its run dir.
pub(crate) const SOCKET: &str = "proxy.sock";

/// The kernel is not as it should be, or what should be is not known yet.
const EXIT_DIFFERS: u8 = 1;

/// What a daemon is asked, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Request {
    /// How it is.
    Status,
    /// What an address is.
    Explain {
        /// Which one.
        target: Target,
        /// For which client.
        from: Option<IpAddr>,
    },
}

/// `explain`: prints the daemon's answer; the exit code says whether the kernel agrees.
/// None if no daemon runs.
///
/// # Errors
/// Nothing can be said: no root, or a daemon that cannot say.
pub(crate) async fn ask_daemon(args: &ExplainArgs) -> anyhow::Result<Option<ExitCode>> {
    let request = Request::Explain {
        target: args.target,
        from: args.from,
    };
    let asked = client::ask(&args.run.paths.run_dir, &request).await?;
    asked.map(|report| tell(args, &report)).transpose()
}

/// `explain` without a daemon.
///
/// # Errors
/// Nothing can be said: no API server, or a kernel that cannot be read.
pub(crate) async fn alone(
    args: &ExplainArgs,
    config: &Config,
    client: &Client,
) -> anyhow::Result<ExitCode> {
    let report = alone::report(config, client, args.target, args.from).await?;
    tell(args, &report)
}

fn tell(args: &ExplainArgs, report: &Report) -> anyhow::Result<ExitCode> {
    print(args.output, report)?;
    Ok(code(report.agree))
}

/// `status`: prints it; the exit code says whether all is in sync, and the kernel is as it
/// should be.
///
/// # Errors
/// Nothing can be said: no root, or a daemon that does not answer.
pub(crate) async fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let asked = client::ask(&args.paths.run_dir, &Request::Status).await?;
    let status: status::Status = asked.unwrap_or_default();
    print(args.output, &status)?;
    Ok(code(status.in_sync))
}

fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_DIFFERS)
    }
}

/// Rules and maps are root's to read, and so is the daemon's socket.
///
/// # Errors
/// This is not root.
pub(crate) fn require_root() -> anyhow::Result<()> {
    anyhow::ensure!(
        nix::unistd::geteuid().is_root(),
        "only root may read what the kernel holds, and ask the daemon"
    );
    Ok(())
}

fn print<T: Serialize + std::fmt::Display>(output: Output, value: &T) -> anyhow::Result<()> {
    let text = match output {
        Output::Text => value.to_string(),
        Output::Json => {
            let json = serde_json::to_string_pretty(value).context("write the answer as JSON")?;
            format!("{json}\n")
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("write the answer"),
    }
}

/// All addresses of this network namespace's links.
fn own_addresses() -> BTreeSet<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return BTreeSet::new();
    };
    let ip = |addr: nix::sys::socket::SockaddrStorage| {
        let v4 = addr.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| addr.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    all.filter_map(|one| one.address.and_then(ip)).collect()
}
