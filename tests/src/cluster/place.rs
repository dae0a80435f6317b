//! Where the programs of a cluster run, and the programs themselves.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::Join;

/// Namespaces and cgroups that a program enters before it starts.
#[derive(Debug)]
pub(super) struct Place {
    namespaces: Vec<OwnedFd>,
    cgroup: PathBuf,
}

impl Place {
    pub(super) fn new(namespaces: Vec<OwnedFd>, cgroup: PathBuf) -> Self {
        Self { namespaces, cgroup }
    }

    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut join = Join::new().cgroup_dir(&self.cgroup);
        for namespace in &self.namespaces {
            join = join.namespace(
                namespace
                    .try_clone()
                    .expect("there are free file descriptors"),
            );
        }
        join.command(program)
    }
}

/// A program of the cluster that runs until it is stopped.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// Describes a program; its log is `DIR/NAME.log`.
    pub(super) fn new(dir: &Path, name: &str, program: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program,
            args: Vec::new(),
            env: Vec::new(),
            log: dir.join(format!("{name}.log")),
            child: None,
        }
    }

    pub(super) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(super) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn spawn(mut self, place: &Place) -> Result<Self> {
        self.start(place)?;
        Ok(self)
    }

    /// Starts it, or starts it again; its log goes on.
    pub(super) fn start(&mut self, place: &Place) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open {}", self.log.display()))?;
        let child = place
            .command(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("duplicate the log's descriptor")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {} ({})", self.name, self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL, as by the kernel out of memory; returns when it is gone.
    ///
    /// # Errors
    /// When it does not run, or cannot be waited for.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        let mut child = self
            .child
            .take()
            .with_context(|| format!("{} does not run", self.name))?;
        child
            .kill()
            .with_context(|| format!("kill {}", self.name))?;
        child
            .wait()
            .with_context(|| format!("wait for {}", self.name))
    }

    /// Its name, such as `node-1-agent`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The file with all that it has said.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails when it has ended by itself.
    pub(super) fn check_alive(&self) -> Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // A zombie: ended, and not waited for.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            bail!("{} has ended; see {}", self.name, self.log.display());
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.is_some() {
            // It may have ended by itself, which is what is wanted here.
            self.kill().ok();
        }
    }
}
