//! What the overlay's device knows: own addresses, and where peers are.
//!
//! The device is ours, and so is all that is in its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::{Address, FdbEntry, IfIndex, MacAddr, Neighbour, Scope, Socket};

use super::{Changes, PodNetworkError, of_both};
use crate::{Desired, Overlay};

/// What the device holds that is wanted no more. To be removed when nothing refers to it.
#[derive(Debug, Default)]
pub(super) struct Stale {
    addresses: Vec<Address>,
    neighbours: Vec<Neighbour>,
    entries: Vec<FdbEntry>,
}

/// Adds what is missing and corrects what is wrong.
pub(super) fn ensure(
    socket: &mut Socket,
    want: &Desired,
    overlay: &Overlay,
    device: IfIndex,
    changes: &mut Changes,
) -> Result<Stale, PodNetworkError> {
    Ok(Stale {
        addresses: addresses(socket, overlay, device, changes)?,
        entries: entries(socket, want, device, changes)?,
        neighbours: neighbours(socket, want, device, changes)?,
    })
}

impl Stale {
    pub(super) fn remove(self, socket: &mut Socket, changes: &mut Changes) {
        for neighbour in &self.neighbours {
            changes.removed(socket.remove_neighbour(neighbour));
        }
        for entry in &self.entries {
            changes.removed(socket.remove_fdb(entry));
        }
        for address in &self.addresses {
            changes.removed(socket.remove_address(address));
        }
    }
}

fn addresses(
    socket: &mut Socket,
    overlay: &Overlay,
    device: IfIndex,
    changes: &mut Changes,
) -> Result<Vec<Address>, PodNetworkError> {
    let mut have = of_both(|family| socket.addresses(family, Some(device)))?;
    // The kernel's own link-local one is nobody's business.
    have.retain(|address| address.scope == Scope::Global);
    let mut missing = Vec::new();
    for ip in &overlay.addresses {
        let place = have.iter().position(|a| a.network == IpNetwork::from(*ip));
        match place {
            Some(place) => drop(have.swap_remove(place)),
            None => missing.push(*ip),
        }
    }
    for ip in missing {
        let mut address = Address::new(device, ip.into());
        // Nobody else can have it, and a route cannot have a tentative one as its source.
        address.no_dad = true;
        changes.wrote(socket.ensure_address(&address));
    }
    Ok(have)
}

/// The peers' hardware addresses, by their reserved addresses: the next hops of routes.
fn neighbours(
    socket: &mut Socket,
    want: &Desired,
    device: IfIndex,
    changes: &mut Changes,
) -> Result<Vec<Neighbour>, PodNetworkError> {
    let have = of_both(|family| socket.neighbours(family, Some(device)))?;
    // What the kernel has found out by itself is not ours.
    let have = have.into_iter().filter(|entry| entry.permanent);
    let mut have: BTreeMap<IpAddr, Neighbour> = have.map(|entry| (entry.address, entry)).collect();
    let peers = want.routes().filter(|(peer, _)| peer.vtep.is_some());
    for (peer, to) in peers {
        let wanted = Neighbour::permanent(device, to.reserved, peer.mac);
        if have.remove(&to.reserved).as_ref() != Some(&wanted) {
            changes.wrote(socket.neighbour_replace(&wanted));
        }
    }
    Ok(have.into_values().collect())
}

/// The peers' underlay addresses, by their hardware addresses.
fn entries(
    socket: &mut Socket,
    want: &Desired,
    device: IfIndex,
    changes: &mut Changes,
) -> Result<Vec<FdbEntry>, PodNetworkError> {
    let mut have: BTreeMap<MacAddr, BTreeSet<FdbEntry>> = BTreeMap::new();
    for entry in socket.fdb(device).map_err(PodNetworkError::netlink)? {
        have.entry(entry.mac).or_default().insert(entry);
    }
    for peer in want.peers.values() {
        let Some(remote) = peer.vtep else { continue };
        let wanted = FdbEntry {
            ifindex: device,
            mac: peer.mac,
            remote,
            link: want.link_towards(remote),
        };
        // Replacing leaves one remote, however many there were.
        if have.remove(&peer.mac) != Some(BTreeSet::from([wanted])) {
            changes.wrote(socket.fdb_replace(&wanted));
        }
    }
    Ok(have.into_values().flatten().collect())
}
