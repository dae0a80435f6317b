//! A program that runs for as long as the node does, with its log in a file.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait_until;

/// A started program.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts a command; what it prints is added to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            log: log.to_owned(),
            child,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Where it prints to.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Sends SIGKILL and waits for its end.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.running()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits for its end.
    ///
    /// # Errors
    /// When it has ended before, or does not end within `patience`.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.running()?;
        let pid = i32::try_from(self.child.id()).expect("a process id is a positive i32");
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        wait_until(patience, &format!("the end of {}", self.name), || {
            Ok(self
                .child
                .try_wait()?
                .map_or_else(|| Err("it runs on".to_owned()), Ok))
        })
    }

    /// Says whether it still runs.
    ///
    /// # Errors
    /// When it has ended, with how, and the end of its log.
    pub fn running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let how = status
            .signal()
            .map_or_else(|| status.to_string(), |n| format!("signal {n}"));
        bail!(
            "{} has ended ({how}); the end of its log:\n{}",
            self.name,
            self.log_tail(15)
        )
    }

    /// The last lines that it printed.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; then this only collects it.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
