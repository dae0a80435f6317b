//! From Nodes to [`Desired`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

use super::node::{Addresses, overlap, parse_cidr};
use super::{
    Desired, Node, Overlay, Path, Peer, PeerCidr, Probe, Skip, SkipReason, Waiting,
    reserved_address, vtep_mac,
};
use crate::{Named, Paths, PodRoutes, Settings};

/// Computes what the node `own` needs from all Nodes.
///
/// A Node that is wrong costs its own routes only. The result does not depend on
/// the order in which Nodes became known. `named` is the operator's link, if one is named and
/// there.
///
/// # Errors
/// [`Waiting`], while this node's own Node does not say which addresses its pods get, or
/// the overlay has no address to stand on.
pub fn desired(
    own: &str,
    nodes: &BTreeMap<String, Node>,
    settings: &Settings,
    paths: &Paths,
    named: Option<&Named>,
) -> Result<Desired, Waiting> {
    let node = nodes.get(own).ok_or_else(|| Waiting::NoNode {
        name: own.to_owned(),
    })?;
    let addresses = if settings.node_ips.is_empty() {
        Addresses::of(node, named)
    } else {
        Addresses::chosen(&settings.node_ips)
    };
    let pod_cidrs = own_pod_cidrs(node, &addresses)?;
    let overlay = overlay(own, settings, &addresses, &pod_cidrs)?;
    let peers = nodes.values().filter(|peer| peer.name != own);
    let peers = peers.map(|peer| (peer, Addresses::of(peer, named)));
    let mut peers: Vec<_> = peers.collect();
    // Of two that claim the same range the older one has pods there.
    peers.sort_by_key(|(peer, _)| (peer.created.unwrap_or(i64::MAX), &peer.name));
    let everybody = peers.iter().flat_map(|(_, addresses)| &addresses.usable);
    let internal_ips = named.map_or_else(BTreeSet::new, |_| internal_ips(nodes));
    let mut plan = Plan {
        settings,
        paths,
        addresses: addresses.usable.iter().chain(everybody).copied().collect(),
        taken: pod_cidrs.iter().map(|c| (*c, own.to_owned())).collect(),
        want: Desired {
            mode: settings.mode,
            pod_cidrs,
            node_ips: addresses.usable,
            overlay,
            uplink: settings.uplink.clone(),
            named: named.map(|named| named.clone().about(&internal_ips)),
            internal_ips,
            mtu: settings.mtu,
            ..Desired::default()
        },
    };
    for (peer, addresses) in &peers {
        plan.add_peer(peer, addresses);
    }
    Ok(plan.finish())
}

struct Plan<'a> {
    settings: &'a Settings,
    paths: &'a Paths,
    /// Of all nodes.
    addresses: Vec<IpAddr>,
    /// Ranges, and whose they are.
    taken: Vec<(IpNetwork, String)>,
    want: Desired,
}

impl Plan<'_> {
    fn add_peer(&mut self, node: &Node, addresses: &Addresses) {
        let mut reasons = Vec::new();
        if let Some(reason) = self.misplaced(addresses) {
            reasons.push(reason);
        } else {
            let cidrs = self.pod_cidrs(node, &mut reasons);
            if cidrs.is_empty() && reasons.is_empty() {
                reasons.push(SkipReason::NoPodCidr);
            }
            let (mut claimed, mut routes) = (Vec::new(), Vec::new());
            for cidr in cidrs {
                match self.route(cidr, node, addresses, &mut claimed) {
                    Ok(route) => routes.push(route),
                    Err(reason) if reasons.contains(&reason) => {}
                    Err(reason) => reasons.push(reason),
                }
            }
            self.probe(node, addresses, &claimed, &routes);
            self.insert(node, addresses, routes);
        }
        let skips = reasons.into_iter().map(|reason| Skip {
            node: node.name.clone(),
            reason,
        });
        self.want.skipped.extend(skips);
    }

    /// An address of a peer that cannot be the peer's.
    fn misplaced(&self, addresses: &Addresses) -> Option<SkipReason> {
        addresses.usable.iter().copied().find_map(|value| {
            if self.want.node_ips.contains(&value) {
                return Some(SkipReason::OwnInternalIp { value });
            }
            let mut own = self.want.pod_cidrs.iter().copied();
            let cidr = own.find(|cidr| cidr.contains(value))?;
            Some(SkipReason::InOwnPodCidr { value, cidr })
        })
    }

    /// The ranges of families that this node has pods of.
    fn pod_cidrs(&self, node: &Node, reasons: &mut Vec<SkipReason>) -> Vec<IpNetwork> {
        let mut cidrs = Vec::new();
        for value in &node.pod_cidrs {
            match parse_cidr(value) {
                Ok(cidr) if self.reserved(Family::of(cidr.ip())).is_some() => cidrs.push(cidr),
                Ok(_) => {}
                Err(fault) => reasons.push(SkipReason::BadPodCidr {
                    value: value.clone(),
                    fault,
                }),
            }
        }
        cidrs
    }

    /// This node's first reserved address of a family.
    fn reserved(&self, family: Family) -> Option<IpAddr> {
        let mut own = self.want.pod_cidrs.iter();
        let cidr = own.find(|cidr| Family::of(cidr.ip()) == family)?;
        Some(reserved_address(*cidr))
    }

    fn route(
        &mut self,
        cidr: IpNetwork,
        node: &Node,
        addresses: &Addresses,
        claimed: &mut Vec<IpNetwork>,
    ) -> Result<PeerCidr, SkipReason> {
        let family = Family::of(cidr.ip());
        let path = self.path(family, node, addresses);
        // What may yet be led to directly is the peer's, though nothing leads there now.
        if path.is_ok() || matches!(path, Err(SkipReason::OtherCarrier { .. })) {
            self.claim(cidr, node)?;
            claimed.push(cidr);
        }
        let path = path?;
        Ok(PeerCidr {
            cidr,
            reserved: reserved_address(cidr),
            // Without the overlay's device the address is on no link.
            source: self.want.overlay.as_ref().and(self.reserved(family)),
            path,
        })
    }

    fn path(&self, family: Family, node: &Node, addresses: &Addresses) -> Result<Path, SkipReason> {
        let direct = addresses.get(family).map(|via| Path::Direct { via });
        let proven =
            self.settings.mode == PodRoutes::Auto && self.paths.is_direct(&node.name, family);
        match &self.want.overlay {
            None => direct,
            Some(_) if proven && direct.is_ok() => direct,
            Some(overlay) => vtep(overlay, addresses).map(|_| Path::Overlay),
        }
    }

    fn claim(&mut self, cidr: IpNetwork, peer: &Node) -> Result<(), SkipReason> {
        if let Some(address) = self.addresses.iter().copied().find(|a| cidr.contains(*a)) {
            return Err(SkipReason::CoversNode { cidr, address });
        }
        if let Some((other, holder)) = self.taken.iter().find(|(taken, _)| overlap(*taken, cidr)) {
            return Err(SkipReason::Overlaps {
                cidr,
                other: *other,
                holder: holder.clone(),
            });
        }
        self.taken.push((cidr, peer.name.clone()));
        Ok(())
    }

    /// Asks about the direct paths to the peer's ranges, those without a route included.
    fn probe(
        &mut self,
        node: &Node,
        addresses: &Addresses,
        claimed: &[IpNetwork],
        routes: &[PeerCidr],
    ) {
        if self.settings.mode != PodRoutes::Auto {
            return;
        }
        for family in [Family::V4, Family::V6] {
            let of_family = |cidr: &IpNetwork| Family::of(cidr.ip()) == family;
            let cidrs: Vec<_> = claimed.iter().copied().filter(of_family).collect();
            let (Some(first), Some(source), Ok(via)) =
                (cidrs.first(), self.reserved(family), addresses.get(family))
            else {
                continue;
            };
            let target = reserved_address(*first);
            self.want.probes.push(Probe {
                node: node.name.clone(),
                family,
                source,
                target,
                via,
                routed: routes.iter().any(|route| route.reserved == target),
                cidrs,
            });
        }
    }

    fn insert(&mut self, node: &Node, addresses: &Addresses, cidrs: Vec<PeerCidr>) {
        if cidrs.is_empty() {
            return;
        }
        let overlay = self.want.overlay.as_ref();
        let peer = Peer {
            vtep: overlay.and_then(|overlay| vtep(overlay, addresses).ok()),
            mac: vtep_mac(&node.name),
            cidrs,
        };
        self.want.peers.insert(node.name.clone(), peer);
    }

    fn finish(mut self) -> Desired {
        let Settings {
            cluster_cidrs,
            non_masquerade_cidrs,
            ..
        } = self.settings;
        let mut spared: Vec<_> = cluster_cidrs
            .iter()
            .chain(non_masquerade_cidrs)
            .copied()
            .collect();
        // Pods see each other's own addresses, whatever the operator has left out.
        for (_, PeerCidr { cidr, .. }) in self.want.routes() {
            let covered = |by: &IpNetwork| by.contains(cidr.ip()) && by.prefix() <= cidr.prefix();
            if !spared.iter().any(covered) {
                spared.push(*cidr);
            }
        }
        spared.sort();
        spared.dedup();
        self.want.non_masquerade = spared;
        self.want.skipped.sort_by(|a, b| a.node.cmp(&b.node));
        self.want.probes.sort();
        self.want
    }
}

/// Of all nodes, those that do not count included.
fn internal_ips(nodes: &BTreeMap<String, Node>) -> BTreeSet<IpAddr> {
    let values = nodes.values().flat_map(|node| &node.internal_ips);
    values.filter_map(|value| value.parse().ok()).collect()
}

/// The peer's address in the overlay's family, if its own overlay has the same.
fn vtep(overlay: &Overlay, addresses: &Addresses) -> Result<IpAddr, SkipReason> {
    let own = Family::of(overlay.local);
    match addresses.carrier() {
        Some(peer) if peer != own => Err(SkipReason::OtherCarrier { peer, own }),
        _ => addresses.get(own),
    }
}

fn overlay(
    own: &str,
    settings: &Settings,
    addresses: &Addresses,
    pod_cidrs: &[IpNetwork],
) -> Result<Option<Overlay>, Waiting> {
    if settings.mode == PodRoutes::Direct {
        return Ok(None);
    }
    let local = addresses.usable.first().copied();
    let local = local.ok_or_else(|| Waiting::NoInternalIp {
        name: own.to_owned(),
    })?;
    Ok(Some(Overlay {
        device: settings.vxlan.device.clone(),
        vni: settings.vxlan.vni,
        port: settings.vxlan.port,
        mac: vtep_mac(own),
        local,
        addresses: pod_cidrs.iter().copied().map(reserved_address).collect(),
    }))
}

/// All of them must be right: the pods' addresses depend on it.
fn own_pod_cidrs(node: &Node, addresses: &Addresses) -> Result<Vec<IpNetwork>, Waiting> {
    let name = || node.name.clone();
    let mut cidrs: Vec<IpNetwork> = Vec::new();
    for value in &node.pod_cidrs {
        let cidr = parse_cidr(value).map_err(|fault| Waiting::BadPodCidr {
            name: name(),
            value: value.clone(),
            fault,
        })?;
        let nodes = addresses.usable.iter().copied().map(IpNetwork::from);
        let mut others = cidrs.iter().copied().chain(nodes);
        if let Some(other) = others.find(|other| overlap(*other, cidr)) {
            return Err(Waiting::OverlappingPodCidr {
                name: name(),
                cidr,
                other,
            });
        }
        cidrs.push(cidr);
    }
    if cidrs.is_empty() {
        return Err(Waiting::NoPodCidr { name: name() });
    }
    Ok(cidrs)
}
