//! `STATUS`: whether an ADD could be served now.

use std::io;
use std::path::Path;

use seaway_netlink::Socket;
use serde::Deserialize;

use crate::attach::netlink;
use crate::config::Config;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::ipam::{self, Store};
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
        && let Some(why) = not_serving(path)?
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

/// Why pods would have no network; `None` when they would.
///
/// Only what this boot's daemon has said counts, and not whether it still runs:
/// what it has put into the kernel stays, and its restart makes no node unready.
fn not_serving(path: &Path) -> Result<Option<String>, Error> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(format!("there is no {}", path.display())));
        }
        Err(source) => {
            let (op, path) = ("read", path.to_owned());
            return Err(Error::File { op, path, source });
        }
    };
    let Ok(state) = serde_json::from_slice::<State>(&text) else {
        return Ok(Some(format!("{} is damaged", path.display())));
    };
    if state.boot_id != ipam::boot_id()? {
        return Ok(Some(format!("{} is of another boot", path.display())));
    }
    match state.device {
        Some(device) => missing(&device),
        None => Ok(None),
    }
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
