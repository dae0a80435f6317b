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

use crate::cache;
use crate::command::HEARTBEAT;
use crate::tally::Tally;

/// Longer than any suite takes; a program that is not done by then hangs.
const LIMIT: Duration = Duration::from_mins(30);

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

    /// Runs it and shows what it prints; says every five seconds that it still runs.
    pub(super) fn run(&self, one_at_a_time: bool, filter: Option<&str>) -> Result<Outcome> {
        let name = format!("{}::{}", self.package, self.target);
        println!("-- {name}");
        let skip_log = cache::dir()?.join(format!("skips-{}", std::process::id()));
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("SEAWAY_SKIP_LOG", &skip_log)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if one_at_a_time {
            command.arg("--test-threads=1");
        }
        if let Some(filter) = filter {
            command.arg(filter);
        }
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let stdout = child.stdout.take().expect("its output was asked for");
        let (mut tally, in_time) = follow(&name, stdout);
        if !in_time {
            eprintln!(
                "{name} has not ended after {} s; it is killed",
                LIMIT.as_secs()
            );
            child.kill().with_context(|| format!("kill {name}"))?;
        }
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        if !status.success() && tally.failed == 0 {
            // Died without a word of its own, by a signal for example.
            eprintln!("{name}: {status}");
            tally.failed += 1;
        }
        tally.reclassify(count_skips(&skip_log));
        Ok(Outcome {
            tally,
            success: status.success(),
        })
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

fn count_skips(log: &Path) -> u32 {
    // No file means that nothing was skipped.
    let lines = fs::read_to_string(log).map_or(0, |text| text.lines().count());
    fs::remove_file(log).ok();
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// Copies the output through as it comes, and adds up the results in it.
/// False when the time was up first.
fn follow(name: &str, stdout: ChildStdout) -> (Tally, bool) {
    let chunks = reader(stdout);
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut line = Vec::new();
    loop {
        match chunks.recv_timeout(HEARTBEAT) {
            Ok(chunk) => {
                show(&chunk);
                for byte in chunk {
                    if byte == b'\n' {
                        let text = String::from_utf8_lossy(&line);
                        tally += Tally::from_line(&text).unwrap_or_default();
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
            Err(RecvTimeoutError::Disconnected) => return (tally, true),
        }
        if started.elapsed() > LIMIT {
            return (tally, false);
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
