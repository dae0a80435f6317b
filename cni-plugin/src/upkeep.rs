//! The verbs that no container runtime calls, but the node's daemon or a
//! person: `seaway-cni repair` and `seaway-cni sweep`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::add::write_out;
use crate::args::Environment;
use crate::config::DEFAULT_DATA_DIR;
use crate::error::Error;
use crate::{repair, sweep};

/// `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;

const USAGE: &str = "\
seaway-cni repair [--data-dir DIR] [--network NAME]
    writes routes and hostPorts of live pods again, and the accepts in FORWARD, where missing,
    and the kernel's settings of their interfaces, where altered
seaway-cni sweep [--data-dir DIR] [--network NAME] [--apart SECONDS]
    releases what dead pods have left, seen so twice with so much time between (5 s)
Without --network they do so for all networks that have records in DIR (/run/seaway/cni).";

/// What a verb is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) data_dir: PathBuf,
    /// All that have records, if it is not given.
    pub(crate) network: Option<String>,
    /// Between two observations, at least.
    pub(crate) apart: Duration,
}

/// `None`: the words are not for us, and this is a runtime's call. The result
/// goes to `stdout` as one JSON object; what failed is in it, and makes the
/// exit code 1.
pub fn upkeep(
    words: &[OsString],
    environment: &Environment,
    stdout: &mut dyn Write,
) -> Option<ExitCode> {
    if environment.contains_key("CNI_COMMAND") {
        return None;
    }
    let (verb, rest) = match words.get(1)?.to_str()? {
        verb @ ("repair" | "sweep") => (verb, words.get(2..).unwrap_or_default()),
        _ => return None,
    };
    let options = match Options::parse(rest) {
        Ok(options) => options,
        Err(why) => return Some(usage(&why)),
    };
    Some(match verb {
        "repair" => answer(repair::repair(&options), stdout),
        _ => answer(sweep::sweep(&options), stdout),
    })
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}\n{USAGE}");
    ExitCode::from(EXIT_USAGE)
}

/// A report that may have failures in it.
pub(crate) trait Report: Serialize {
    fn failed(&self) -> bool;
}

fn answer<R: Report>(report: Result<R, Error>, stdout: &mut dyn Write) -> ExitCode {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{}", told(&error));
            return ExitCode::FAILURE;
        }
    };
    let text = serde_json::to_string(&report).expect("all keys are text");
    match write_out(stdout, &text) {
        Ok(()) if !report.failed() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn told(error: &Error) -> String {
    let details = error.details();
    if details.is_empty() {
        error.to_string()
    } else {
        format!("{error}: {details}")
    }
}

impl Options {
    fn parse(words: &[OsString]) -> Result<Self, String> {
        let mut options = Self {
            data_dir: DEFAULT_DATA_DIR.into(),
            network: None,
            apart: Duration::from_secs(5),
        };
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            let flag = flag.to_string_lossy();
            let value = words.next().ok_or_else(|| format!("{flag} has no value"))?;
            let text = || value.to_str().ok_or_else(|| format!("{flag} is not UTF-8"));
            match flag.as_ref() {
                "--data-dir" => options.data_dir = value.into(),
                "--network" if !crate::args::is_identifier(text()?) => {
                    return Err(format!("--network {} is no name", text()?));
                }
                "--network" => options.network = Some(text()?.to_owned()),
                "--apart" => {
                    let seconds = text()?
                        .parse()
                        .map_err(|error| format!("{flag}: {error}"))?;
                    options.apart = Duration::from_secs(seconds);
                }
                _ => return Err(format!("{flag} is not known")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        let words: Vec<OsString> = text.split_whitespace().map(Into::into).collect();
        Options::parse(&words)
    }

    #[test]
    fn flags_are_read_and_wrong_ones_named() {
        let all = parse("--data-dir /d --network n --apart 7").unwrap();
        assert_eq!(all.data_dir, PathBuf::from("/d"));
        assert_eq!(all.network.as_deref(), Some("n"));
        assert_eq!(all.apart, Duration::from_secs(7));
        assert_eq!(parse("").unwrap().data_dir, PathBuf::from(DEFAULT_DATA_DIR));
        for wrong in [
            "--network",
            "--network ../x",
            "--apart soon",
            "--verbose yes",
        ] {
            let flag = wrong.split(' ').next().unwrap();
            assert!(parse(wrong).unwrap_err().contains(flag), "{wrong}");
        }
    }

    #[test]
    fn a_runtimes_call_is_never_taken_for_one_of_these() {
        // With a flag that is not known, so that nothing of this machine is touched.
        let words = ["seaway-cni", "sweep", "--dry", "yes"].map(OsString::from);
        let environment = [("CNI_COMMAND".to_owned(), "ADD".to_owned())].into();
        let mut stdout = Vec::new();
        assert!(upkeep(&words, &environment, &mut stdout).is_none());
        assert!(upkeep(&words[..1], &Environment::new(), &mut stdout).is_none());
        let other = ["seaway-cni", "--help"].map(OsString::from);
        assert!(upkeep(&other, &Environment::new(), &mut stdout).is_none());
        assert!(upkeep(&words, &Environment::new(), &mut stdout).is_some());
        assert!(stdout.is_empty());
    }
}
