//! Starting a machine and reading its console.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::image::Base;
use super::{Kernel, Outcome, Report};

/// How often a machine that panics before its init is started again.
const MOST_BOOTS: u32 = 4;
/// Mitigations against other processors' tricks cost an emulated one much: page-table
/// isolation alone makes it forget its translations with every system call.
const KERNEL_LINE: &str = "console=ttyS0 panic=-1 loglevel=3 mitigations=off";
/// Lines of the init begin with this.
const MARK: &str = "@@seaway ";

pub(super) fn run(base: &Base, kernel: Kernel, drive: &Path, patience: Duration) -> Result<Report> {
    for boots in 1..=MOST_BOOTS {
        let console = boot(base, kernel, drive, patience)?;
        if console.contains(&format!("{MARK}up ")) {
            return Ok(Report {
                outcomes: outcomes(&console),
                boots,
                console,
            });
        }
        eprintln!(
            "boot {boots} of {kernel:?} ended before init:\n{}",
            tail(&console, 15)
        );
    }
    bail!("{kernel:?} has not come up in {MOST_BOOTS} boots")
}

/// Runs a machine until it powers off; returns its console.
fn boot(base: &Base, kernel: Kernel, drive: &Path, patience: Duration) -> Result<String> {
    let disk = |path: &Path| format!("file={},if=virtio,format=raw", path.display());
    let child = Command::new("qemu-system-x86_64")
        .args([
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "2",
            "-cpu",
            "max",
            "-m",
            "2048",
        ])
        .args(["-nographic", "-no-reboot", "-snapshot", "-nic", "none"])
        .arg("-kernel")
        .arg(base.kernel(kernel))
        .arg("-initrd")
        .arg(base.initrd(kernel))
        .args(["-drive", &disk(&base.root()), "-drive", &disk(drive)])
        .args(["-append", KERNEL_LINE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("start qemu-system-x86_64")?;
    let mut machine = Machine(child);
    let lines = machine.console();
    let deadline = Instant::now() + patience;
    let mut console = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if line.starts_with(MARK) {
                    eprintln!("{kernel:?}: {line}");
                }
                console.push_str(&line);
                console.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(console),
            Err(RecvTimeoutError::Timeout) => bail!(
                "{kernel:?} did not end in {} s; the end of its console:\n{}",
                patience.as_secs(),
                tail(&console, 60)
            ),
        }
    }
}

/// A running emulator, ended with this guard.
struct Machine(Child);

impl Machine {
    /// The lines of its console, until it ends.
    fn console(&mut self) -> Receiver<String> {
        let (sender, receiver) = channel();
        let output = self.0.stdout.take().expect("it was asked for above");
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line)
                    .trim_end_matches('\r')
                    .to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself; then this only collects it.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Cuts a console into what the commands printed.
fn outcomes(console: &str) -> Vec<Outcome> {
    let mut found: Vec<Outcome> = Vec::new();
    for line in console.lines() {
        // A program's last line may lack its end.
        let (text, mark) = match line.split_once(MARK) {
            Some((text, mark)) => (text, mark),
            None => (line, ""),
        };
        if let Some(open) = found.last_mut().filter(|outcome| outcome.status.is_none())
            && (!text.is_empty() || mark.is_empty())
        {
            open.output.push_str(text);
            open.output.push('\n');
        }
        let words: Vec<&str> = mark.split_whitespace().collect();
        match *words.as_slice() {
            ["begin", name] => {
                let name = name
                    .split_once('-')
                    .map_or(name, |(_, name)| name)
                    .to_owned();
                found.push(Outcome {
                    name,
                    status: None,
                    time: Duration::ZERO,
                    output: String::new(),
                });
            }
            ["end", _, status, seconds] => {
                if let Some(open) = found.last_mut() {
                    open.status = status.parse().ok();
                    open.time = Duration::from_secs(seconds.parse().unwrap_or(0));
                }
            }
            _ => {}
        }
    }
    found
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_cut_at_the_marks() {
        let console = "\
[    0.0] noise
@@seaway up 6.1.0
@@seaway begin 000-one
hello
no end of line@@seaway end 000-one 0 7
@@seaway begin 001-two
Kernel panic
";
        let outcome = |name: &str, status, seconds, output: &str| Outcome {
            name: name.to_owned(),
            status,
            time: Duration::from_secs(seconds),
            output: output.to_owned(),
        };
        assert_eq!(
            outcomes(console),
            [
                outcome("one", Some(0), 7, "hello\nno end of line\n"),
                outcome("two", None, 0, "Kernel panic\n"),
            ]
        );
    }
}
