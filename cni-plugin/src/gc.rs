//! `GC`: what no valid attachment owns goes.

use std::collections::BTreeSet;

use seaway_netlink::{IfIndex, Link, Socket};

use crate::attach::netlink;
use crate::config::{Attachments, Network};
use crate::del::release;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Key, Store};
use crate::plan::{Identity, group, is_host_ifname};
use crate::sweep::orphans;

/// Carries out `GC`. The runtime guarantees that nothing is added meanwhile.
///
/// Goes on after failures and reports them all: one record that cannot be
/// removed must not keep the others.
pub(crate) fn gc(
    network: &Network,
    valid: &Attachments,
    delegate: Option<Delegate<'_>>,
) -> Result<(), Error> {
    let mut failures = Vec::new();
    let store = Store::open(&network.data_dir, &network.name)?;
    let recorded: BTreeSet<Key> = store.holders()?.into_iter().map(|held| held.key).collect();
    let doomed: Vec<&Key> = recorded.difference(&valid.0).collect();

    // Links first and all at once: one by one each costs the kernel 20 ms.
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let kept: BTreeSet<String> = valid.0.iter().map(host_ifname).collect();
    let links = host.links().map_err(netlink("list the interfaces"))?;
    let indexes: Vec<IfIndex> = links
        .iter()
        .filter(|link| is_orphan(link, network, &kept))
        .map(|link| link.index)
        .collect();
    if let Err(source) = host.remove_links(&indexes) {
        failures.push(netlink("delete interfaces")(source));
    }
    for key in doomed {
        // Another IPAM plugin gets the whole list.
        failures.extend(release(network, key, || Ok(())).err());
    }
    // What lost records have left; nothing is added meanwhile.
    let orphans = orphans(&store, &mut host);
    let closed = orphans.and_then(|pods| hostports::remove(&Vec::from_iter(pods)));
    failures.extend(closed.err());
    failures.extend(delegate.and_then(|delegate| delegate.tell("GC").err()));
    Error::all("collect garbage", failures)
}

/// A pair of this network without a valid attachment. Other networks' pairs are
/// in groups of their own.
fn is_orphan(link: &Link, network: &Network, kept: &BTreeSet<String>) -> bool {
    link.kind.as_deref() == Some("veth")
        && link.group == group(&network.name)
        && is_host_ifname(&link.name)
        && !kept.contains(&link.name)
}

fn host_ifname(key: &Key) -> String {
    Identity::of(&key.container_id, &key.ifname).host_ifname
}
