//! One call of the plugin, from the process's inputs to its outputs.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Args, Command, Environment, NetworkVerb, Verb};
use crate::config::{Attachments, Config, Network};
use crate::delegate::Delegate;
use crate::error::Error;
use crate::version::Version;
use crate::{about, add, check, del, gc, loopback, status};

/// Confs are shorter, so that one read takes all of it.
const CONF_BYTES: usize = 4096;

/// Serves one call. `stdout` gets the result or the error object and nothing
/// else; a failed call exits with 1, as runtimes expect.
pub fn run(
    program: &OsStr,
    environment: &Environment,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
) -> ExitCode {
    let is_loopback = Path::new(program).file_name() == Some(OsStr::new("loopback"));
    let mut conf = Vec::with_capacity(CONF_BYTES);
    let outcome = match Command::from_env(environment) {
        Ok(None) => {
            eprintln!("{}", about::text());
            return ExitCode::SUCCESS;
        }
        Ok(Some(Command::Attachment(verb))) => {
            attachment(verb, is_loopback, environment, stdin, &mut conf, stdout)
        }
        Ok(Some(Command::Network(verb))) => read(stdin, &mut conf).and_then(|()| {
            // lo needs nothing that could be absent, and leaves nothing.
            if is_loopback {
                Ok(())
            } else {
                network(verb, environment, &conf)
            }
        }),
        Ok(Some(Command::Version)) => read(stdin, &mut conf)
            .and_then(|()| add::write_out(stdout, &about::version(&conf).to_string())),
        Err(error) => Err(error),
    };
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    let text = error.to_json(asked_version(&conf)).to_string();
    if let Err(unwritten) = add::write_out(stdout, &text) {
        eprintln!("{unwritten}: {}", unwritten.details());
        eprintln!("{text}");
    }
    ExitCode::FAILURE
}

/// Order as in the CNI project's library: environment, then standard input.
fn attachment(
    verb: Verb,
    is_loopback: bool,
    environment: &Environment,
    stdin: &mut dyn Read,
    conf: &mut Vec<u8>,
    stdout: &mut dyn Write,
) -> Result<(), Error> {
    let args = Args::from_env(verb, environment)?;
    read(stdin, conf)?;
    if is_loopback {
        return loopback::loopback(verb, &args, conf, stdout);
    }
    match verb {
        Verb::Add => {
            let config = Config::parse(conf)?;
            let delegate = Delegate::of(&config.network, environment, conf);
            add::add(&config, &args, delegate, stdout)
        }
        Verb::Del => {
            let network = Network::lenient(conf)?;
            del::del(&network, &args, Delegate::of(&network, environment, conf))
        }
        Verb::Check => {
            let config = Config::parse(conf)?;
            since("CHECK", Version::V0_4_0, config.network.version)?;
            check::check(
                &config,
                &args,
                Delegate::of(&config.network, environment, conf),
            )
        }
    }
}

fn network(verb: NetworkVerb, environment: &Environment, conf: &[u8]) -> Result<(), Error> {
    match verb {
        NetworkVerb::Gc => {
            let network = Network::lenient(conf)?;
            since("GC", Version::V1_1_0, network.version)?;
            let valid = Attachments::parse(conf)?;
            let call = gc::Call {
                network: &network,
                environment,
                conf,
            };
            gc::gc(call, &valid)
        }
        NetworkVerb::Status => {
            let config = Config::parse(conf)?;
            since("STATUS", Version::V1_1_0, config.network.version)?;
            status::status(&config, Delegate::of(&config.network, environment, conf))
        }
    }
}

fn read(stdin: &mut dyn Read, conf: &mut Vec<u8>) -> Result<(), Error> {
    stdin
        .read_to_end(conf)
        .map(drop)
        .map_err(|source| Error::Stdin { source })
}

fn since(verb: &'static str, needed: Version, have: Version) -> Result<(), Error> {
    if have >= needed {
        Ok(())
    } else {
        Err(Error::VerbVersion { verb, needed, have })
    }
}

/// An error is reported in the caller's version where that can be read.
fn asked_version(conf: &[u8]) -> Version {
    crate::config::parse(conf).map_or(Version::NEWEST, |(_, version, _)| version)
}
