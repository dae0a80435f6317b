//! Ginkgo and `e2e.test`, beside the control plane of a running cluster.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use seaway_testbed::cluster::{Cluster, tool};

use super::Args;
use crate::command::{HEARTBEAT, tail};

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// All of upstream's tests, one after the other, on a busy machine.
const LONGEST: &str = "--timeout=12h";
/// What ginkgo prints for a test that has ended, and what it begins with for those that have
/// failed.
const ENDED: &str = "•";
const NOT_PASSED: &str = "• [";

/// From now on these signals are for [`ginkgo`], which ends the tests; the cluster then ends
/// with its guard.
///
/// # Errors
/// When they cannot be blocked.
pub(super) fn block_signals() -> Result<SignalFd> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("block signals")?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("make a file for signals")
}

/// Runs the tests that `args` asks for, to their end; gives the path of their report.
///
/// # Errors
/// When they cannot be started, end without a report, or a signal comes.
pub(super) fn ginkgo(
    cluster: &Cluster,
    args: &Args,
    folder: &Path,
    signals: &SignalFd,
) -> Result<PathBuf> {
    let junit = folder.join("junit.xml");
    let log = folder.join("ginkgo.log");
    let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut command = cluster.command(tool("ginkgo"));
    command
        .args(["--no-color", LONGEST, "--output-dir"])
        .arg(folder)
        .arg("--junit-report=junit.xml")
        .arg(format!("--procs={}", args.procs))
        .arg(format!("--focus={}", args.focus))
        .args(args.skip.iter().map(|skip| format!("--skip={skip}")))
        .arg(tool("e2e.test"))
        .args(["--", "--provider=skeleton"])
        .arg(format!("--num-nodes={}", cluster.nodes().len()))
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        // Some tests start kubectl; its discovery cache belongs to this cluster.
        .env("PATH", path_with_tools()?)
        .env("HOME", cluster.dir())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("duplicate the log's descriptor")?)
        .stderr(file);
    println!("e2e.test runs; its log is {}", log.display());
    let child = command.spawn().context("start ginkgo")?;
    let status = wait(child, &log, signals)?;
    // Failed tests are an error of ginkgo's, but not one of ours.
    if !junit.is_file() {
        bail!(
            "ginkgo has ended ({status}) without a report:\n{}",
            tail(&log)
        );
    }
    Ok(junit)
}

fn path_with_tools() -> Result<std::ffi::OsString> {
    let tools = seaway_testbed::cache_dir().join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(tools).chain(std::env::split_paths(&path)))
        .context("put the cluster's tools on the PATH")
}

/// Says every few seconds how far it is.
fn wait(mut child: Child, log: &Path, signals: &SignalFd) -> Result<ExitStatus> {
    let started = Instant::now();
    let mut said = started;
    loop {
        if let Some(status) = child.try_wait().context("look at ginkgo")? {
            return Ok(status);
        }
        if let Some(signal) = signals.read_signal().context("read a signal")? {
            // Its own children end with the control plane's cgroup.
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).ok();
            child.wait().context("wait for ginkgo")?;
            bail!("ended by signal {}", signal.ssi_signo);
        }
        if said.elapsed() >= HEARTBEAT {
            let progress = progress(&fs::read_to_string(log).unwrap_or_default());
            let seconds = started.elapsed().as_secs();
            println!("  e2e.test ... {seconds} s{progress}");
            said = Instant::now();
        }
        thread::park_timeout(LOOK_AGAIN);
    }
}

/// What to add to a line about it; nothing as long as nothing is known.
fn progress(log: &str) -> String {
    let Some((_, rest)) = log.split_once("Will run ") else {
        return String::new();
    };
    let wanted = rest.split(' ').next().unwrap_or_default();
    let passed = rest.matches(ENDED).count() - rest.matches(NOT_PASSED).count();
    format!(", {passed} of {wanted} have passed")
}

/// Copies what the cluster's programs have said.
///
/// # Errors
/// When a file cannot be copied.
pub(super) fn keep_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = entry.context("list the cluster's folder")?.path();
        let name = path.file_name().unwrap_or_default();
        if path.extension().is_some_and(|kind| kind == "log") {
            fs::copy(&path, to.join(name)).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_ginkgo_prints() {
        assert_eq!(progress("Running Suite: Kubernetes e2e suite"), "");
        let log = "Random Seed: 1\n\nWill run 47 of 7579 specs\nRunning in parallel\nSS•S••\n• [FAILED] [8 s]\nS";
        assert_eq!(progress(log), ", 3 of 47 have passed");
    }
}
