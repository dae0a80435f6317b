//! What `fuzz/` calls: everything that reads bytes from a runtime or a file.
//!
//! Compiled by `cargo xtask fuzz` only.

use crate::args::{Args, Verb};
use crate::config::{Attachments, Config, Network};
use crate::error::Error;
use crate::ipam::{Held, Record};
use crate::version::Version;

/// A network configuration on standard input. Whatever it holds, each verb reads it
/// or refuses it with an error that can be printed; what ADD takes, DEL takes as well.
pub fn conf(bytes: &[u8]) {
    let config = Config::parse(bytes);
    let network = Network::lenient(bytes);
    assert!(
        config.is_err() || network.is_ok(),
        "DEL refuses what ADD took"
    );
    if let Ok(config) = &config
        && let Some(result) = &config.prev_result
    {
        for version in Version::SUPPORTED {
            result.clone().render(version);
        }
    }
    let attachments = Attachments::parse(bytes);
    for error in [config.err(), network.err(), attachments.err()] {
        error.iter().for_each(printable);
    }
}

/// The value of `CNI_ARGS`, and of the other variables, one a line.
pub fn args(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let names = [
        "CNI_ARGS",
        "CNI_CONTAINERID",
        "CNI_IFNAME",
        "CNI_NETNS",
        "CNI_PATH",
    ];
    let environment = names
        .into_iter()
        .zip(text.lines())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for verb in [Verb::Add, Verb::Check, Verb::Del] {
        if let Err(error) = Args::from_env(verb, &environment) {
            printable(&error);
        }
    }
}

/// A file in the folder of address records: its name up to the first line break, then
/// its content.
pub fn record(bytes: &[u8]) {
    let (name, content) = bytes
        .iter()
        .position(|&b| b == b'\n')
        .map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 1..]));
    let held = Held::parse(&String::from_utf8_lossy(name));
    let record = serde_json::from_slice::<Record>(content);
    if let (Some(held), Ok(record)) = (held, record) {
        // What is written again is the same: repair and sweep do that.
        let text = serde_json::to_vec(&record).expect("all keys are text");
        let back: Record = serde_json::from_slice(&text).expect("we have written it");
        assert_eq!(back, record, "{held:?}");
    }
}

fn printable(error: &Error) {
    let object = error.to_json(Version::NEWEST);
    assert!(
        object["code"].as_u64().is_some_and(|code| code > 0),
        "{object}"
    );
    assert!(
        object["msg"].as_str().is_some_and(|text| !text.is_empty()),
        "{object}"
    );
}
