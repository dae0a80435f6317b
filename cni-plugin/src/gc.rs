//! `GC`: what no valid attachment owns goes.

use std::collections::BTreeSet;

use seaway_netlink::{IfIndex, Link, Socket};

use crate::args::Environment;
use crate::attach::netlink;
use crate::config::{Attachments, Network};
use crate::del::release_busy;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Key, Store};
use crate::plan::{Identity, group, is_host_ifname};
use crate::sweep::{give_back, orphans};

/// How the runtime has called, which is how another IPAM plugin is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) network: &'a Network,
    pub(crate) environment: &'a Environment,
    pub(crate) conf: &'a [u8],
}

/// Carries out `GC`. The runtime guarantees that nothing is added meanwhile.
///
/// Goes on after failures and reports them all: one record that cannot be
/// removed must not keep the others.
pub(crate) fn gc(call: Call<'_>, valid: &Attachments) -> Result<(), Error> {
    let network = call.network;
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
        if let Err(source) = release(&store, key, call) {
            failures.push(stays(key, source));
        }
    }
    // What lost records have left; nothing is added meanwhile.
    let orphans = orphans(&store, &mut host);
    let closed = orphans.and_then(|pods| hostports::remove(&Vec::from_iter(pods)));
    failures.extend(closed.err());
    let delegate = Delegate::of(network, call.environment, call.conf);
    failures.extend(delegate.and_then(|delegate| delegate.tell("GC").err()));
    Error::all("collect garbage", failures)
}

/// Releases like `DEL`. Hardly an IPAM plugin does anything at `GC`, so the one that gave the
/// addresses is told of each attachment; until it lets go the record stays, since nobody else
/// knows of them. A plugin that is gone never would.
fn release(store: &Store, key: &Key, call: Call<'_>) -> Result<(), Error> {
    let _busy = store.busy(key)?;
    let records = store.contents(key)?;
    let readable = records.iter().find_map(|(_, record)| record.as_ref());
    release_busy(store, key, || {
        let told = match readable {
            Some(record) => give_back(key, record),
            None if records.is_empty() => Ok(()),
            None => tell_todays(key, call),
        };
        match told {
            Err(gone @ Error::NoPlugin { .. }) => {
                let (container, ifname) = (&key.container_id, &key.ifname);
                eprintln!("Released untold: container {container}, interface {ifname}: {gone}");
                Ok(())
            }
            told => told,
        }
    })
}

fn stays(key: &Key, source: Error) -> Error {
    Error::Kept {
        container_id: key.container_id.clone(),
        ifname: key.ifname.clone(),
        source: Box::new(source),
    }
}

/// Tells the IPAM plugin of today's configuration of an attachment whose record cannot be read:
/// most likely that one has given the addresses.
fn tell_todays(key: &Key, call: Call<'_>) -> Result<(), Error> {
    let mut environment = call.environment.clone();
    for (name, value) in [
        ("CNI_CONTAINERID", &key.container_id),
        ("CNI_IFNAME", &key.ifname),
    ] {
        environment.insert(name.to_owned(), value.clone());
    }
    match Delegate::of(call.network, &environment, call.conf) {
        Some(delegate) => delegate.tell("DEL"),
        None => Ok(()),
    }
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
