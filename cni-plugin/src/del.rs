//! `DEL`: the interface goes, then the address.

use std::net::IpAddr;

use crate::add::key;
use crate::args::Args;
use crate::attach::delete;
use crate::config::Network;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Key, Record, Store};
use crate::plan::Identity;

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
    release(network, &key, || delegate.map_or(Ok(()), |d| d.tell("DEL")))
}

/// Takes away all that an attachment has, the address last, so that it never
/// has two users. `give_back` tells another IPAM plugin.
pub(crate) fn release(
    network: &Network,
    key: &Key,
    give_back: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let identity = Identity::of(&key.container_id, &key.ifname);
    let store = Store::open(&network.data_dir, &network.name)?;
    let _busy = store.busy(key)?;
    clear(&identity.host_ifname, &store.contents(key)?)?;
    give_back()?;
    store.release(key)?;
    Ok(())
}

/// Takes away what an attachment has in the kernel: with the host's end of the
/// pair go the pod's, the routes and the neighbour entries; then the ports of
/// the host.
pub(crate) fn clear(host_ifname: &str, records: &[(IpAddr, Option<Record>)]) -> Result<(), Error> {
    delete(host_ifname)?;
    hostports::close(records)
}
