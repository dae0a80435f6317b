//! Runs iptables' programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use seaway_proxy_core::backend::Retry;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Exit status for "could not get the lock" and for lack of memory: `RESOURCE_PROBLEM` of
/// iptables' `xtables.h`.
const RESOURCE_PROBLEM: i32 = 4;
/// Lines of an error output worth repeating.
const STDERR_LINES: usize = 5;

/// A program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its input or output broke off.
    #[error("talk to {}", program.display())]
    Pipe {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It took too long and was killed.
    #[error("{} did not end within {limit:?}", program.display())]
    Timeout {
        /// The program.
        program: PathBuf,
        /// The configured limit.
        limit: Duration,
    },
    /// It says that it failed.
    #[error("{} failed ({status}): {stderr}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// Exit status or signal.
        status: ExitStatus,
        /// First lines of its error output.
        stderr: String,
    },
    /// Its output is not what it should be.
    #[error("{} printed something unexpected", program.display())]
    Output {
        /// The program.
        program: PathBuf,
        /// Where.
        source: crate::save::ParseError,
    },
}

impl CommandError {
    /// Whether the program does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Failed { status, .. } if status.code() == Some(RESOURCE_PROBLEM) => Retry::Now,
            Self::Start { .. } if self.is_missing() => Retry::Never,
            _ => Retry::Backoff,
        }
    }
}

/// Runs a program in the caller's network namespace, with `input`, and returns
/// what it prints.
pub(crate) async fn run(
    program: &Path,
    args: &[&str],
    input: &str,
    limit: Duration,
) -> Result<String, CommandError> {
    let timed = tokio::time::timeout(limit, run_unlimited(program, args, input));
    let timeout = |_| CommandError::Timeout {
        program: program.to_owned(),
        limit,
    };
    timed.await.map_err(timeout)?
}

async fn run_unlimited(program: &Path, args: &[&str], input: &str) -> Result<String, CommandError> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| CommandError::Start {
            program: program.to_owned(),
            source,
        })?;
    let pipe = |source| CommandError::Pipe {
        program: program.to_owned(),
        source,
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let feed = async move {
        let written = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        written
    };
    let (fed, output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(pipe)?;
    if !output.status.success() {
        // A program that gives up early also breaks the pipe; its own words say more.
        return Err(CommandError::Failed {
            program: program.to_owned(),
            status: output.status,
            stderr: first_lines(&String::from_utf8_lossy(&output.stderr), STDERR_LINES, "; "),
        });
    }
    fed.map_err(pipe)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first `count` lines with something in them.
pub(crate) fn first_lines(text: &str, count: usize, separator: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(count).collect::<Vec<_>>().join(separator)
}
