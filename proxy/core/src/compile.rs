//! Decides who answers for each Service port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::desired::{
    DesiredState, Family, FamilyState, Frontend, HealthCheck, Protocol, ServicePort,
    ServicePortName,
};
use crate::ingest::{Port, ServiceSpec};
use crate::model::Model;
use crate::node::Node;
use crate::skipped::{Kind, ObjectKey, SkipReason, Skipped};

mod bids;
mod claims;
pub(crate) mod endpoints;
mod incremental;

pub use incremental::Compiler;

use claims::Claims;
use endpoints::Known;

/// The outcome of [`compile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// What the kernel should do.
    pub desired: DesiredState,
    /// Everything that is not programmed, sorted.
    pub skipped: Vec<Skipped>,
}

/// Computes the desired state of `node`.
///
/// The result depends on the objects alone, not on the order in which they came. This is
/// what the state means; [`Compiler`] comes to the same by looking at what has changed.
pub fn compile(model: &Model, node: &Node) -> Compiled {
    let mut services: Vec<_> = model.services().collect();
    // The older Service keeps a contested frontend, so that a new one cannot
    // take traffic away from it; the name breaks ties.
    services.sort_by_key(|(key, spec)| (spec.created.unwrap_or(i64::MAX), *key));

    let mut skipped: Vec<Skipped> = model.skipped().cloned().collect();
    let mut claims = Claims::default();
    for wave in claims::WAVES {
        for &(key, spec) in &services {
            claims.wave(wave, key, spec, node, &mut skipped);
        }
    }
    let mut desired = DesiredState::default();
    set_node(&mut desired, node);
    for &(key, spec) in &services {
        let mut take = |family, name: &ServicePortName| claims.take(family, name);
        push_service(&mut desired, model, node, key, spec, &mut take);
        report_ranges(key, spec, &mut skipped);
    }
    skipped.sort();
    Compiled { desired, skipped }
}

/// What does not depend on any Service.
fn set_node(desired: &mut DesiredState, node: &Node) {
    for family in Family::ALL {
        let half = desired.family_mut(family);
        half.node_ports = node.node_port_addresses(family);
        half.local_sources = node.local_sources(family);
        half.masquerade_all = node.masquerade_all;
    }
}

/// The sorted frontends of a Service port in a family.
type Frontends<'a> = &'a mut dyn FnMut(Family, &ServicePortName) -> Vec<Frontend>;

/// A Service's ports and health checks in both families.
fn push_service(
    desired: &mut DesiredState,
    model: &Model,
    node: &Node,
    key: &ObjectKey,
    spec: &ServiceSpec,
    frontends: Frontends<'_>,
) {
    for family in Family::ALL {
        let half = desired.family_mut(family);
        push_half(half, family, model, node, key, spec, frontends);
    }
}

fn push_half(
    half: &mut FamilyState,
    family: Family,
    model: &Model,
    node: &Node,
    key: &ObjectKey,
    spec: &ServiceSpec,
    frontends: Frontends<'_>,
) {
    let mut local_ready: BTreeSet<IpAddr> = BTreeSet::new();
    let mut here = false;
    for port in &spec.ports {
        let name = port_name(key, port);
        let frontends = frontends(family, &name);
        if frontends.is_empty() {
            continue;
        }
        here = true;
        let known = Known::of(model, key, port, node, family);
        local_ready.extend(known.local_ready());
        let service_port = ServicePort {
            frontends,
            cluster: known.cluster(node),
            local: known.local(),
            serving: match port.protocol {
                Protocol::Tcp => Vec::new(),
                Protocol::Udp | Protocol::Sctp => known.serving(),
            },
            unplaced: known.unplaced(),
            internal: spec.internal,
            external: spec.external,
            source_ranges: source_ranges(spec, family, node),
            affinity: spec.affinity,
        };
        half.services.insert(name, service_port);
    }
    if let Some(port) = spec.health_check_node_port
        && here
    {
        let check = HealthCheck {
            port,
            endpoints: local_ready.len(),
        };
        half.health_checks.insert(key.clone(), check);
    }
}

pub(crate) fn port_name(key: &ObjectKey, port: &Port) -> ServicePortName {
    ServicePortName {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        port: port.name.clone(),
    }
}

/// Who may use the load balancer IPs of a family.
///
/// A node that holds such an address itself may use it as the source of its own
/// connections; they are let in where the node itself is.
fn source_ranges(spec: &ServiceSpec, family: Family, node: &Node) -> Option<Vec<IpNetwork>> {
    let ranges = spec.source_ranges.as_ref()?;
    let of_family = |addr: &IpAddr| Family::of(*addr) == family;
    let mut own: Vec<IpNetwork> = ranges
        .iter()
        .filter(|range| of_family(&range.ip()))
        .copied()
        .collect();
    let mut addresses = node.addresses.iter().filter(|addr| of_family(addr));
    if addresses.any(|addr| own.iter().any(|range| range.contains(*addr))) {
        let vips = spec.load_balancer_ips.iter().filter(|addr| of_family(addr));
        own.extend(vips.map(|addr| IpNetwork::from(*addr)));
    }
    own.sort_unstable();
    own.dedup();
    Some(own)
}

/// Tells an owner who restricts one family that the other one is closed.
fn report_ranges(key: &ObjectKey, spec: &ServiceSpec, skipped: &mut Vec<Skipped>) {
    let Some(ranges) = &spec.source_ranges else {
        return;
    };
    for family in Family::ALL {
        let has = |addr: IpAddr| Family::of(addr) == family;
        let vips = spec.load_balancer_ips.iter().any(|addr| has(*addr));
        if vips && !ranges.iter().any(|range| has(range.ip())) {
            skipped.push(Skipped {
                kind: Kind::Service,
                object: key.clone(),
                field: "spec.loadBalancerSourceRanges".to_owned(),
                reason: SkipReason::NoRangeOfFamily { family },
            });
        }
    }
}

#[cfg(test)]
mod tests;
