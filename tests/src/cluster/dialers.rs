//! Dialers: programs on nodes and in pods that open connections all the time.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Cluster, until};
use crate::peer::Dialed;

/// Until the first answers, on a busy machine.
const FIRST_ANSWERS: Duration = Duration::from_mins(1);
/// How long a dialer that is told to stop may still wait for its last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Programs that open connections to servers, until this is dropped.
#[derive(Debug, Default)]
pub struct Dialers {
    running: Vec<Dialer>,
}

#[derive(Debug)]
struct Dialer {
    name: String,
    out: PathBuf,
    child: Child,
}

impl Dialers {
    /// Starts one more: `place` is the program `seaway-peer` where it is to run; it dials
    /// `address` at that pace.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn add(
        &mut self,
        cluster: &Cluster,
        name: String,
        mut place: Command,
        address: SocketAddr,
        every: Duration,
    ) -> Result<()> {
        // The name is free after the dialers of an earlier step, too.
        let file = tempfile::NamedTempFile::new_in(cluster.dir()).context("make a dialer's log")?;
        let (file, out) = file.keep().context("keep a dialer's log")?;
        let child = place
            .args(["dial", &address.to_string(), &every.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .with_context(|| format!("start the dialer of {name}"))?;
        self.running.push(Dialer { name, out, child });
        Ok(())
    }

    /// Waits until each has been answered.
    ///
    /// # Errors
    /// As [`Dialers::counts`], and when one has no answer in time.
    pub fn wait_answered(&self) -> Result<()> {
        until("every dialer is answered", FIRST_ANSWERS, || {
            let counts = self.counts()?;
            let ok = |dialed: &Dialed| dialed.new > 0 && dialed.held > 0;
            Ok(counts.iter().all(|(_, dialed)| ok(dialed)).then_some(()))
        })
    }

    /// What each has seen so far, by its name.
    ///
    /// # Errors
    /// When one has seen a failure, with what it said.
    pub fn counts(&self) -> Result<Vec<(String, Dialed)>> {
        let read = |dialer: &Dialer| Ok((dialer.name.clone(), dialer.read()?));
        self.running.iter().map(read).collect()
    }

    /// Ends them, and returns what each has seen in the end.
    ///
    /// # Errors
    /// As [`Dialers::counts`], and when one does not end.
    pub fn stop(mut self) -> Result<Vec<(String, Dialed)>> {
        for dialer in &mut self.running {
            dialer.child.stdin.take();
        }
        for Dialer { name, child, .. } in &mut self.running {
            until(&format!("the dialer of {name} ends"), LAST_ANSWERS, || {
                child.try_wait().context("wait for a dialer")
            })?;
        }
        self.counts()
    }
}

impl Drop for Dialers {
    fn drop(&mut self) {
        for Dialer { child, .. } in &mut self.running {
            // It may have ended, which is what is wanted here.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Dialer {
    fn read(&self) -> Result<Dialed> {
        let file = File::open(&self.out).context("open what a dialer says")?;
        let mut dialed = Dialed::default();
        for line in BufReader::new(file).lines() {
            let line = line.context("read what a dialer says")?;
            ensure!(!line.starts_with("FAIL "), "{}: {line}", self.name);
            // The last line may be half written.
            dialed = line.parse().unwrap_or(dialed);
        }
        Ok(dialed)
    }
}
