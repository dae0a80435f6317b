//! Another plugin that hands out the addresses (`ipam.type`; CNI
//! specification 1.1.0, section 4 "Plugin Delegation").

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::poll::poll;
use serde_json::Value;

use crate::args::Environment;
use crate::config::Network;
use crate::error::Error;
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

    /// `ADD`: the addresses, routes and DNS that it gives.
    pub(crate) fn add(&self) -> Result<CniResult, Error> {
        let output = self.call("ADD")?;
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
        self.call(verb).map(drop)
    }

    fn call(&self, verb: &'static str) -> Result<Vec<u8>, Error> {
        let program = self.find()?;
        let mut command = Command::new(&program);
        command
            .env_clear()
            .envs(self.environment)
            .env("CNI_COMMAND", verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let output = self.run(&mut command).map_err(|source| Error::File {
            op: "run",
            path: program,
            source,
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

    fn run(&self, command: &mut Command) -> std::io::Result<Output> {
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
        child.wait_with_output()
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
