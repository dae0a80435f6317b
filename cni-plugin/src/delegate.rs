//! Another plugin that hands out the addresses (`ipam.type`; CNI
//! specification 1.1.0, section 4 "Plugin Delegation").

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::poll::poll;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::args::Environment;
use crate::config::Network;
use crate::error::Error;
use crate::ipam::RecordedIpam;
use crate::result::CniResult;

/// The other plugin, and what it is called with: our own environment and
/// configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delegate<'a> {
    kind: &'a str,
    environment: &'a Environment,
    conf: &'a [u8],
}

/// A binary that is just being replaced cannot be run for a moment; libcni
/// waits as often.
const BUSY_ATTEMPTS: u32 = 6;
const BUSY_PAUSE_MS: u16 = 500;

/// As long as an `ADD` may take: a runtime does not wait for longer. The slowest in use asks
/// a DHCP server several times, for less than a minute.
const PATIENCE: Duration = Duration::from_mins(2);
/// "Try again later" of CNI specification 1.1.0, section 5.
pub(crate) const TRY_AGAIN: u32 = 11;

/// The output of a program, which is killed when its time is over.
fn wait(child: Child, patience: Duration) -> std::io::Result<Output> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new().spawn(move || drop(sender.send(child.wait_with_output())))?;
    receiver.recv_timeout(patience).unwrap_or_else(|_late| {
        // Nobody has waited for it yet, so the number is still its own.
        kill(pid, Signal::SIGKILL)?;
        Err(ErrorKind::TimedOut.into())
    })
}

impl<'a> Delegate<'a> {
    /// `None`: the addresses are our own.
    pub(crate) fn of(
        network: &'a Network,
        environment: &'a Environment,
        conf: &'a [u8],
    ) -> Option<Self> {
        let kind = network.delegate.as_deref()?;
        Some(Self {
            kind,
            environment,
            conf,
        })
    }

    /// What it takes to call the plugin for the same attachment later.
    pub(crate) fn recorded(&self) -> RecordedIpam {
        let variable = |name: &str| self.environment.get(name).cloned().unwrap_or_default();
        RecordedIpam {
            kind: self.kind.to_owned(),
            path: variable("CNI_PATH"),
            args: variable("CNI_ARGS"),
            conf: String::from_utf8_lossy(self.conf).into_owned(),
        }
    }

    /// The plugin of a record. `environment` has the attachment's variables.
    pub(crate) fn of_record(recorded: &'a RecordedIpam, environment: &'a Environment) -> Self {
        Self {
            kind: &recorded.kind,
            environment,
            conf: recorded.conf.as_bytes(),
        }
    }

    /// Whether it asks on the pod's interface, which must be up for that.
    pub(crate) fn needs_link(&self) -> bool {
        self.kind == "dhcp"
    }

    /// `ADD`: the addresses, routes and DNS that it gives.
    pub(crate) fn add(&self) -> Result<CniResult, Error> {
        let output = self.call("ADD", PATIENCE)?;
        let failed = |why| self.failed("ADD", 999, why);
        let value: Value =
            serde_json::from_slice(&output).map_err(|error| failed(error.to_string()))?;
        let result = CniResult::parse(&value)?;
        if result.ips.is_empty() {
            return Err(failed(String::from("its result has no address")));
        }
        Ok(result)
    }

    /// The verbs that answer nothing.
    pub(crate) fn tell(&self, verb: &'static str) -> Result<(), Error> {
        self.tell_within(verb, PATIENCE)
    }

    /// The same for who cannot wait for as long.
    pub(crate) fn tell_within(&self, verb: &'static str, patience: Duration) -> Result<(), Error> {
        self.call(verb, patience).map(drop)
    }

    fn call(&self, verb: &'static str, patience: Duration) -> Result<Vec<u8>, Error> {
        let program = self.find()?;
        let mut command = Command::new(&program);
        command
            .env_clear()
            .envs(self.environment)
            .env("CNI_COMMAND", verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let output = self.run(&mut command, patience).map_err(|source| {
            if source.kind() == ErrorKind::TimedOut {
                let why = format!("no answer within {} s", patience.as_secs());
                return self.failed(verb, TRY_AGAIN, why);
            }
            Error::File {
                op: "run",
                path: program,
                source,
            }
        })?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        // Its own error object, where there is one, says it best.
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let code = said["code"].as_u64().and_then(|code| code.try_into().ok());
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        let why = match (text("msg"), text("details")) {
            (msg, _) if msg.is_empty() => output.status.to_string(),
            (msg, details) if details.is_empty() => msg,
            (msg, details) => format!("{msg}: {details}"),
        };
        Err(self.failed(verb, code.unwrap_or(999), why))
    }

    fn run(&self, command: &mut Command, patience: Duration) -> std::io::Result<Output> {
        let mut attempt = 1;
        let mut child = loop {
            match command.spawn() {
                Err(error)
                    if error.kind() == ErrorKind::ExecutableFileBusy && attempt < BUSY_ATTEMPTS =>
                {
                    attempt += 1;
                    poll(&mut [], BUSY_PAUSE_MS)?;
                }
                outcome => break outcome?,
            }
        };
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(self.conf) {
                // One that fails early does not read it.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        wait(child, patience)
    }

    fn find(&self) -> Result<PathBuf, Error> {
        let path = self.environment.get("CNI_PATH").map_or("", String::as_str);
        path.split(':')
            .filter(|dir| !dir.is_empty())
            .map(|dir| PathBuf::from(dir).join(self.kind))
            .find(|program| program.is_file())
            .ok_or_else(|| Error::NoPlugin {
                kind: self.kind.to_owned(),
                path: path.to_owned(),
            })
    }

    fn failed(&self, verb: &'static str, code: u32, why: String) -> Error {
        Error::Delegate {
            kind: self.kind.to_owned(),
            verb,
            code,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        let started = Instant::now();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        let error = wait(child, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        while kill(pid, None).is_ok() {
            assert!(started.elapsed() < Duration::from_secs(10), "it still runs");
            std::thread::yield_now();
        }
        let child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        assert!(
            wait(child, Duration::from_secs(10))
                .unwrap()
                .status
                .success()
        );
    }
}
