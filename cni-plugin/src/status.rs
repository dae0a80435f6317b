//! `STATUS`: whether an ADD could be served now.

use crate::config::Config;
use crate::error::Error;
use crate::ipam::Store;

/// containerd asks this of networks of version 1.1.0, and holds the node
/// unready while it fails.
pub(crate) fn status(config: &Config) -> Result<(), Error> {
    let usage = Store::open(&config.network.data_dir, &config.network.name)
        .and_then(|store| store.usage(&config.pool))
        .map_err(|error| Error::NotReady {
            source: Box::new(error.into()),
        })?;
    if usage.free > 0 {
        return Ok(());
    }
    let pool = config.pool.to_string();
    let source = Error::Exhausted {
        pool,
        size: usage.size,
        holders: usage.holders,
    };
    Err(Error::NotReady {
        source: Box::new(source),
    })
}
