//! Starting a machine and following its console.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::image::Base;
use super::process::Process;
use super::{Kernel, Outcome, Report};

/// How often a machine that panics or hangs before its init is started.
const MOST_BOOTS: u32 = 4;
/// A boot takes seconds; systemd, on a busy machine, a minute.
const UNTIL_UP: Duration = Duration::from_mins(5);
/// Mitigations against other processors' tricks cost an emulated one much: page-table
/// isolation alone makes it forget its translations with every system call.
const KERNEL_LINE: &str = "console=ttyS0 panic=-1 loglevel=3 mitigations=off";
/// So many lines of a console tell what went wrong, with what a script says of it.
const LAST_LINES: usize = 120;
/// Lines of the init begin with this.
const MARK: &str = "@@seaway ";

/// What becomes of what a machine writes to its disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Disk<'a> {
    /// It is gone when the machine ends.
    Forgets(&'a Path),
    /// It is there at the next start.
    Remembers(&'a Path),
}

/// How a machine is started.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) base: &'a Base,
    pub(super) kernel: Kernel,
    pub(super) root: Disk<'a>,
    pub(super) payload: &'a Path,
    /// What the kernel's command line says besides.
    pub(super) words: String,
    /// Whether it has a network device; it leads to an emulated DHCP server and no further.
    pub(super) uplink: bool,
}

/// A machine that is up. When it is dropped its power is cut, as it is when the thread that
/// started it ends.
#[derive(Debug)]
pub struct Running {
    process: Process,
    lines: Receiver<String>,
    kernel: Kernel,
    boots: u32,
    console: String,
}

/// Starts a machine, again if it panics early, and waits until its init runs.
pub(super) fn start(setup: &Setup<'_>) -> Result<Running> {
    for boots in 1..=MOST_BOOTS {
        let mut process = Process::start(&arguments(setup))?;
        let mut running = Running {
            lines: process.console(),
            process,
            kernel: setup.kernel,
            boots,
            console: String::new(),
        };
        match running.line(&format!("{MARK}up "), UNTIL_UP) {
            Ok(Some(_)) => return Ok(running),
            Ok(None) => eprintln!(
                "boot {boots} of {:?} ended before init:\n{}",
                setup.kernel,
                tail(&running.console, 15)
            ),
            Err(late) => eprintln!("boot {boots}: {late}"),
        }
    }
    bail!("{:?} has not come up in {MOST_BOOTS} boots", setup.kernel)
}

fn arguments(setup: &Setup<'_>) -> Vec<String> {
    let drive = |path: &Path, more: &str| {
        let path = path.display();
        [
            "-drive".to_owned(),
            // A machine whose disk cannot grow says so; it would stand still without a word.
            format!("file={path},if=virtio,format=raw,werror=report{more}"),
        ]
    };
    let (root, more) = match setup.root {
        Disk::Forgets(path) => (path, ",snapshot=on"),
        // This machine's own power is not lost: what QEMU has written is there.
        Disk::Remembers(path) => (path, ",cache=unsafe"),
    };
    let nic = if setup.uplink {
        "user,model=virtio-net-pci,restrict=on"
    } else {
        "none"
    };
    let line = format!("{KERNEL_LINE} {}", setup.words);
    let kernel = setup.base.kernel(setup.kernel).display().to_string();
    let initrd = setup.base.initrd(setup.kernel).display().to_string();
    let words = [
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "2",
        "-cpu",
        "max",
        "-m",
        "2048",
        "-nographic",
        "-no-reboot",
        "-nic",
        nic,
        "-kernel",
        &kernel,
        "-initrd",
        &initrd,
        "-append",
        &line,
    ];
    let words = words.into_iter().map(str::to_owned);
    let drives = [drive(root, more), drive(setup.payload, ",snapshot=on")];
    words.chain(drives.into_iter().flatten()).collect()
}

impl Running {
    /// Waits for a line with `start` in it; returns what follows.
    ///
    /// # Errors
    /// When the machine ends before or the time is over, with the end of its console.
    pub fn wait_line(&mut self, start: &str, patience: Duration) -> Result<String> {
        match self.line(start, patience)? {
            Some(rest) => Ok(rest),
            None => bail!(
                "{:?} ended before it said {start:?}; the end of its console:\n{}",
                self.kernel,
                self.last_lines()
            ),
        }
    }

    /// The end of its console, up to the line that was waited for last.
    #[must_use]
    pub fn last_lines(&self) -> String {
        tail(&self.console, LAST_LINES)
    }

    /// Ends it as a power cut does: at once, with whatever was not on its disk lost. Returns
    /// its console.
    #[must_use]
    pub fn cut_power(self) -> String {
        drop(self.process);
        let rest: Vec<String> = self.lines.iter().collect();
        self.console + &rest.join("\n")
    }

    /// Waits until it has powered itself off.
    ///
    /// # Errors
    /// When it does not in time, with the end of its console.
    pub fn finish(mut self, patience: Duration) -> Result<Report> {
        const NEVER: &str = "\n";
        self.line(NEVER, patience)?;
        Ok(Report {
            outcomes: outcomes(&self.console),
            boots: self.boots,
            console: self.console,
        })
    }

    /// The same, or none when it has ended.
    fn line(&mut self, start: &str, patience: Duration) -> Result<Option<String>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if line.contains("@@") || line.ends_with(" ... FAILED") {
                        eprintln!("{:?}: {line}", self.kernel);
                    }
                    self.console.push_str(&line);
                    self.console.push('\n');
                    // Firmware and programs leave lines without an end.
                    if let Some((_, rest)) = line.split_once(start) {
                        return Ok(Some(rest.to_owned()));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => bail!(
                    "{:?} did not get there in {} s; the end of its console:\n{}",
                    self.kernel,
                    patience.as_secs(),
                    self.last_lines()
                ),
            }
        }
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
