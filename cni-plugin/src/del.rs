//! `DEL`: the interface goes, then the address.

use std::net::IpAddr;

use crate::add::key;
use crate::args::Args;
use crate::attach::{delete, group_of};
use crate::config::Network;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Key, Record, Store};
use crate::plan::{Identity, group, is_group};

/// Carries out `DEL`; what is gone already is fine.
///
/// Needs neither the namespace nor a `prevResult`, and looks at no interface
/// of the pod: `CNI_NETNS` may by now be somebody else's.
pub(crate) fn del(
    network: &Network,
    args: &Args,
    delegate: Option<Delegate<'_>>,
) -> Result<(), Error> {
    let key = key(args);
    match delegate {
        // It tells its server over the interface.
        Some(other) if other.needs_link() => {
            other.tell("DEL")?;
            release(network, &key, || Ok(()))
        }
        Some(other) => release(network, &key, || other.tell("DEL")),
        None => release(network, &key, || Ok(())),
    }
}

/// Takes away all that an attachment has, the address last, so that it never
/// has two users. `give_back` tells another IPAM plugin.
pub(crate) fn release(
    network: &Network,
    key: &Key,
    give_back: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let store = Store::open(&network.data_dir, &network.name)?;
    // Without its folder the store has no lock, and an ADD that makes the folder meanwhile
    // would lose its record to us. Where it cannot be made, there is no ADD either.
    drop(store.create());
    let _busy = store.busy(key)?;
    release_busy(&store, key, give_back)
}

/// The same for who keeps other calls for the attachment waiting already.
pub(crate) fn release_busy(
    store: &Store,
    key: &Key,
    give_back: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    clear(store, key, &store.contents(key)?)?;
    give_back()?;
    store.release(key)?;
    Ok(())
}

/// Takes away what an attachment has in the kernel: with the host's end of the
/// pair go the pod's, the routes and the neighbour entries; then the ports of
/// the host. A pair that another network has made under this name stays.
pub(crate) fn clear(
    store: &Store,
    key: &Key,
    records: &[(IpAddr, Option<Record>)],
) -> Result<(), Error> {
    let host_ifname = Identity::of(&key.container_id, &key.ifname).host_ifname;
    match group_of(&host_ifname)? {
        None => {}
        Some(mark) if mark == group(store.network()) => drop(delete(&host_ifname)?),
        Some(mark) if is_group(mark) || store.is_held_elsewhere(key)? => {}
        // Somebody has taken the mark away, or a garbage collection was killed.
        Some(_) => drop(delete(&host_ifname)?),
    }
    hostports::close(records)
}
