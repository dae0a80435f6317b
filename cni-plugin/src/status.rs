//! `STATUS`: whether an ADD could be served now.

use std::io;
use std::path::Path;

use seaway_netlink::Socket;
use serde::Deserialize;

use crate::attach::netlink;
use crate::config::Config;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::ipam::Store;
use crate::sysctl;

/// containerd asks this of networks of version 1.1.0, and holds the node
/// unready while it fails.
pub(crate) fn status(config: &Config, delegate: Option<Delegate<'_>>) -> Result<(), Error> {
    if let Some(delegate) = delegate {
        // It says with its own code which way it is not ready.
        delegate.tell("STATUS")?;
    }
    able(config).map_err(|source| Error::NotReady {
        source: Box::new(source),
    })
}

fn able(config: &Config) -> Result<(), Error> {
    if config.pools.has_v6() {
        sysctl::require_ipv6()?;
    }
    let store = Store::open(&config.network.data_dir, &config.network.name)?;
    store.try_write()?;
    let pods = store.holders()?.len();
    if let Some(path) = &config.pod_network_state
        && let Some(why) = not_serving(path, store.boot_id())?
    {
        return Err(Error::NotServing { why, pods });
    }
    if pods > 0 {
        sysctl::require_forwarding(&config.pools)?;
    }
    let usage = store.usage(&config.pools)?;
    match usage.into_iter().find(|u| u.free == 0) {
        None => Ok(()),
        Some(full) => Err(Error::Exhausted {
            pool: full.pool,
            size: full.size,
            holders: full.holders,
        }),
    }
}

/// What the daemon writes when the pod network serves: `StateFile` of cni-plugin/podnet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    boot_id: String,
    device: Option<String>,
}

/// What the daemon has said of the pod network.
enum Word {
    /// In this boot: that it serves.
    Serves(State),
    /// Nothing in this boot.
    Silence(String),
    /// Nothing that can be read.
    Damaged(String),
}

/// An ADD before the daemon has served in this boot would be one by the conf of the boot
/// before, to nowhere: with a podCIDR that may be another node's by now, without routes to
/// peers and without a masquerade.
///
/// Runtimes that know STATUS wait for it; older ones do not ask. What else may be wrong with
/// the state is no reason to keep a pod from starting.
pub(crate) fn require_word(config: &Config, boot_id: &str) -> Result<(), Error> {
    if let Some(path) = &config.pod_network_state
        && let Ok(Word::Silence(why)) = word(path, boot_id)
    {
        return Err(Error::NotYet { why });
    }
    Ok(())
}

/// Why pods would have no network; `None` when they would.
///
/// Only what this boot's daemon has said counts, and not whether it still runs:
/// what it has put into the kernel stays, and its restart makes no node unready.
fn not_serving(path: &Path, boot_id: &str) -> Result<Option<String>, Error> {
    match word(path, boot_id)? {
        Word::Silence(why) | Word::Damaged(why) => Ok(Some(why)),
        Word::Serves(state) => match state.device {
            Some(device) => missing(&device),
            None => Ok(None),
        },
    }
}

/// `boot_id` is that of the boot which runs.
fn word(path: &Path, boot_id: &str) -> Result<Word, Error> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Word::Silence(format!("there is no {}", path.display())));
        }
        Err(source) => {
            let (op, path) = ("read", path.to_owned());
            return Err(Error::File { op, path, source });
        }
    };
    let Ok(state) = serde_json::from_slice::<State>(&text) else {
        return Ok(Word::Damaged(format!("{} is damaged", path.display())));
    };
    if state.boot_id != boot_id {
        let why = format!("{} is of another boot", path.display());
        return Ok(Word::Silence(why));
    }
    Ok(Word::Serves(state))
}

fn missing(device: &str) -> Result<Option<String>, Error> {
    let look = || netlink("look at the pod network's device");
    match Socket::open().map_err(look())?.link_by_name(device) {
        Ok(link) if link.up => Ok(None),
        Ok(_) => Ok(Some(format!("device {device} is down"))),
        Err(error) if error.is_not_found() => Ok(Some(format!("there is no device {device}"))),
        Err(error) => Err(look()(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_46_a_word_counts_in_the_boot_whose_records_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod-network.json");
        std::fs::write(&path, r#"{"bootId": "this"}"#).unwrap();
        assert!(matches!(word(&path, "this"), Ok(Word::Serves(_))));
        assert!(matches!(word(&path, "another"), Ok(Word::Silence(_))));
    }
}
