//! `DEL`: the interface goes, then the address.

use crate::add::key;
use crate::args::Args;
use crate::attach::delete;
use crate::config::Network;
use crate::error::Error;
use crate::ipam::{Key, Store};
use crate::plan::Identity;

/// Carries out `DEL`; what is gone already is fine.
///
/// Needs neither the namespace nor a `prevResult`, and looks at no interface
/// of the pod: `CNI_NETNS` may by now be somebody else's.
pub(crate) fn del(network: &Network, args: &Args) -> Result<(), Error> {
    release(network, &key(args))
}

/// Takes away all that an attachment has.
///
/// With the host's end of the pair go the pod's, the routes and the neighbour
/// entries. Only then is the address free, so that it never has two users.
pub(crate) fn release(network: &Network, key: &Key) -> Result<(), Error> {
    let identity = Identity::of(&key.container_id, &key.ifname);
    delete(&identity.host_ifname)?;
    Store::open(&network.data_dir, &network.name)?.release(key)?;
    Ok(())
}
