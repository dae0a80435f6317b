//! Runs iptables' programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use seaway_proxy_core::backend::Retry;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::save::ParseError;

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
        source: ParseError,
    },
}

impl CommandError {
    /// Whether the program has said that it cannot, and so may still do something else.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether it is that a table has something that only nft can show.
    pub(crate) fn is_of_nft_alone(&self) -> bool {
        matches!(
            self,
            Self::Output {
                source: ParseError::Incompatible { .. },
                ..
            }
        )
    }
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

/// Whether a program of iptables can be run at all.
pub(crate) async fn is_installed(program: &Path, limit: Duration) -> Result<(), CommandError> {
    run(program, &["--version"], "", limit).await.map(|_| ())
}

/// Runs a program likewise, without input, and hands over what it prints line by line:
/// all of it at once may be more than the rest of this process.
pub(crate) async fn each_line(
    program: &Path,
    args: &[&str],
    limit: Duration,
    take: impl FnMut(&str),
) -> Result<(), CommandError> {
    let timed = tokio::time::timeout(limit, each_line_unlimited(program, args, take));
    let timeout = |_| CommandError::Timeout {
        program: program.to_owned(),
        limit,
    };
    timed.await.map_err(timeout)?
}

async fn each_line_unlimited(
    program: &Path,
    args: &[&str],
    mut take: impl FnMut(&str),
) -> Result<(), CommandError> {
    let mut child = spawn(program, args, Stdio::null())?;
    let pipe = |source| CommandError::Pipe {
        program: program.to_owned(),
        source,
    };
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let read = async move {
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line).await? > 0 {
            take(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            line.clear();
        }
        Ok(())
    };
    let (read, output) = tokio::join!(read, child.wait_with_output());
    succeeded(program, &output.map_err(pipe)?)?;
    read.map_err(pipe)
}

fn spawn(program: &Path, args: &[&str], stdin: Stdio) -> Result<Child, CommandError> {
    let mut command = Command::new(program);
    command.args(args).stdin(stdin);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = command.kill_on_drop(true).spawn();
    spawned.map_err(|source| CommandError::Start {
        program: program.to_owned(),
        source,
    })
}

fn succeeded(program: &Path, output: &Output) -> Result<(), CommandError> {
    if output.status.success() {
        return Ok(());
    }
    Err(CommandError::Failed {
        program: program.to_owned(),
        status: output.status,
        stderr: first_lines(&String::from_utf8_lossy(&output.stderr), STDERR_LINES, "; "),
    })
}

async fn run_unlimited(program: &Path, args: &[&str], input: &str) -> Result<String, CommandError> {
    let mut child = spawn(program, args, Stdio::piped())?;
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
    // A program that gives up early also breaks the pipe; its own words say more.
    succeeded(program, &output)?;
    fed.map_err(pipe)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first of the names of what was removed, for the log.
pub(crate) fn first_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const NAMES: usize = 20;
    let all: Vec<&str> = names.collect();
    first_lines(&all.join("\n"), NAMES, " ")
}

/// The first `count` lines with something in them.
pub(crate) fn first_lines(text: &str, count: usize, separator: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(count).collect::<Vec<_>>().join(separator)
}
