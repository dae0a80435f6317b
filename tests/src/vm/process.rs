//! The emulator's process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, Result};

/// A running emulator. It ends with this guard, and with the thread that has started it: a
/// test that is killed leaves none behind.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(arguments: &[String]) -> Result<Self> {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("start qemu-system-x86_64 by setpriv")?;
        Ok(Self(child))
    }

    /// The lines of its console, until it ends.
    pub(super) fn console(&mut self) -> Receiver<String> {
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

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then this only collects it.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
