//! `STATUS`: whether an ADD could be served now.

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
    let able = || {
        if config.pools.has_v6() {
            sysctl::require_ipv6()?;
        }
        let store = Store::open(&config.network.data_dir, &config.network.name)?;
        if !store.holders()?.is_empty() {
            sysctl::require_forwarding(&config.pools)?;
        }
        match store
            .usage(&config.pools)?
            .into_iter()
            .find(|u| u.free == 0)
        {
            None => Ok(()),
            Some(full) => Err(Error::Exhausted {
                pool: full.pool,
                size: full.size,
                holders: full.holders,
            }),
        }
    };
    able().map_err(|source| Error::NotReady {
        source: Box::new(source),
    })
}
