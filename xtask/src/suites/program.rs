//! One compiled test program.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::cases::Verdict;
use super::report::Report;
use crate::cache;
use crate::command::HEARTBEAT;
use crate::tally::Tally;

/// Longer than any suite takes; a program that is not done by then hangs.
const LIMIT: Duration = Duration::from_mins(75);

/// libtest's exit status when it has told of failed tests.
const FAILED_TESTS: i32 = 101;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) target: String,
    executable: PathBuf,
    folder: PathBuf,
}

pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) success: bool,
    /// It did not come to its end: what it has not named was not judged.
    pub(super) died: bool,
    /// Of every test that was named, by its path.
    pub(super) verdicts: Vec<(String, Verdict)>,
}

impl Program {
    /// Reads one of cargo's JSON messages; not every message is of a test program.
    pub(super) fn from_message(message: &Value) -> Option<Self> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some(Self {
            package: package_name(message["package_id"].as_str()?),
            target: message["target"]["name"].as_str()?.to_owned(),
            executable: PathBuf::from(message["executable"].as_str()?),
            folder: folder.to_path_buf(),
        })
    }

    /// Runs it with these arguments and shows what it prints; says every five seconds that it
    /// still runs.
    pub(super) fn run(&self, arguments: &[String]) -> Result<Outcome> {
        let name = self.name();
        println!("-- {name}");
        let skip_log = cache::dir()?.join(format!("skips-{}", std::process::id()));
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("SEAWAY_SKIP_LOG", &skip_log)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let stdout = child.stdout.take().expect("its output was asked for");
        let mut report = Report::new(&skip_log);
        let in_time = follow(&name, stdout, &mut report);
        if !in_time {
            eprintln!(
                "{name} has not ended after {} s; it is killed",
                LIMIT.as_secs()
            );
            child.kill().with_context(|| format!("kill {name}"))?;
        }
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        let judged =
            status.success() || (report.tally.failed > 0 && status.code() == Some(FAILED_TESTS));
        if !status.success() && report.tally.failed == 0 {
            // Died without a word of its own, by a signal for example.
            eprintln!("{name}: {status}");
            report.tally.failed += 1;
        }
        let (tally, verdicts) = report.complete();
        fs::remove_file(&skip_log).ok();
        Ok(Outcome {
            tally,
            success: status.success(),
            died: !in_time || !judged,
            verdicts,
        })
    }

    pub(super) fn name(&self) -> String {
        format!("{}::{}", self.package, self.target)
    }

    /// The folder of its package, relative to the root of the tree.
    pub(super) fn folder(&self) -> String {
        let folder = self.folder.strip_prefix(cache::tree());
        folder.unwrap_or(&self.folder).display().to_string()
    }
}

/// `path+file:///x/tests#seaway-testbed@0.1.0`, or `path+file:///x/xtask#0.1.0`
/// where the folder has the package's name.
fn package_name(id: &str) -> String {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

/// Copies the output through as it comes, and reports its lines. False when the
/// time was up first.
fn follow(name: &str, stdout: ChildStdout, report: &mut Report) -> bool {
    let chunks = reader(stdout);
    let started = Instant::now();
    let mut line = Vec::new();
    loop {
        match chunks.recv_timeout(HEARTBEAT) {
            Ok(chunk) => {
                show(&chunk);
                for byte in chunk {
                    if byte == b'\n' {
                        report.line(&String::from_utf8_lossy(&line));
                        line.clear();
                    } else {
                        line.push(byte);
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let doing = String::from_utf8_lossy(&line);
                eprintln!("   {name} {} s {doing}", started.elapsed().as_secs());
            }
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        if started.elapsed() > LIMIT {
            return false;
        }
    }
}

fn show(chunk: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A terminal that went away is no reason to stop testing.
    out.write_all(chunk).and_then(|()| out.flush()).ok();
}

fn reader(mut stdout: ChildStdout) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = stdout.read(&mut buffer) {
            if length == 0 || send.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_come_from_both_forms_of_ids() {
        assert_eq!(
            package_name("path+file:///x/tests#seaway-testbed@0.1.0"),
            "seaway-testbed"
        );
        assert_eq!(package_name("path+file:///x/xtask#0.1.0"), "xtask");
    }
}
