//! Which flows are stale.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use seaway_proxy_core::desired::{FamilyState, FrontendKind, NodePortAddresses, Protocol};

use super::entry::Entry;
use super::memory::Names;

#[cfg(test)]
mod tests;

/// Where flows of one family may go on to, by where their clients send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flows {
    addresses: BTreeMap<(Protocol, SocketAddr), BTreeSet<SocketAddr>>,
    node_ports: BTreeMap<(Protocol, u16), BTreeSet<SocketAddr>>,
    /// Where NodePorts are served; as by default if there are none.
    node_port_addresses: NodePortAddresses,
}

impl Flows {
    pub(crate) fn of(half: &FamilyState) -> Self {
        let mut flows = Self::default();
        for port in half.services.values() {
            for frontend in &port.frontends {
                let protocol = frontend.protocol;
                if protocol == Protocol::Tcp {
                    continue;
                }
                let serving = port.serving.iter().copied().collect();
                if frontend.kind == FrontendKind::NodePort {
                    flows.node_ports.insert((protocol, frontend.port), serving);
                    flows.node_port_addresses = half.node_ports.clone();
                } else {
                    let addr = SocketAddr::new(frontend.addr, frontend.port);
                    flows.addresses.insert((protocol, addr), serving);
                }
            }
        }
        flows
    }

    /// Nobody is known to serve them.
    pub(super) fn named(names: &Names) -> Self {
        let nobody = BTreeSet::new;
        let addresses = names.addresses.iter();
        let node_ports = names.node_ports.iter();
        Self {
            addresses: addresses.map(|to| (*to, nobody())).collect(),
            node_ports: node_ports.map(|to| (*to, nobody())).collect(),
            // Wherever they may have been served.
            node_port_addresses: NodePortAddresses {
                networks: None,
                localhost: true,
            },
        }
    }

    pub(super) fn names(&self) -> Names {
        Names {
            addresses: self.addresses.keys().copied().collect(),
            node_ports: self.node_ports.keys().copied().collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }

    /// Takes up where others may go on to as well, to be looked at as what was there `before`.
    pub(crate) fn absorb(&mut self, others: &Self) {
        self.addresses.extend(others.addresses.clone());
        self.node_ports.extend(others.node_ports.clone());
        if !others.node_ports.is_empty() {
            self.node_port_addresses = others.node_port_addresses.clone();
        }
    }

    /// `None`: it is no Service's. `own` are the node's addresses: a flow to the
    /// number of a NodePort on some other host is none of ours.
    fn serving(&self, entry: &Entry, own: &BTreeSet<IpAddr>) -> Option<&BTreeSet<SocketAddr>> {
        let (protocol, to) = (entry.protocol, entry.to);
        if let Some(serving) = self.addresses.get(&(protocol, to)) {
            return Some(serving);
        }
        let local = to.ip().is_loopback() || own.contains(&to.ip());
        if !local || !self.node_port_addresses.serves(to.ip()) {
            return None;
        }
        self.node_ports.get(&(protocol, to.port()))
    }
}

/// Whether the next packet of the flow should meet the rules again. What was a
/// Service's `before` and is none any more counts as long as it is translated.
pub(crate) fn stale(entry: &Entry, own: &BTreeSet<IpAddr>, now: &Flows, before: &Flows) -> bool {
    if let Some(serving) = now.serving(entry, own) {
        return !serving.contains(&entry.answers);
    }
    before.serving(entry, own).is_some() && entry.answers != entry.to
}
