//! Decides who answers for each Service port.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::desired::{
    DesiredState, Endpoint, Frontend, FrontendKind, ServicePort, ServicePortName,
};
use crate::ingest::{Conditions, Port, ServiceSpec};
use crate::model::Model;
use crate::skipped::{Kind, ObjectKey, SkipReason, Skipped};

/// The outcome of [`compile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// What the kernel should do.
    pub desired: DesiredState,
    /// Everything that is not programmed, sorted.
    pub skipped: Vec<Skipped>,
}

/// Computes the desired state of the node named `node_name`.
///
/// The result depends on the objects alone, not on the order in which they came.
pub fn compile(model: &Model, node_name: &str) -> Compiled {
    let mut services: Vec<_> = model.services().collect();
    // The older Service keeps a contested frontend, so that a new one cannot
    // take traffic away from it; the name breaks ties.
    services.sort_by_key(|(key, spec)| (spec.created.unwrap_or(i64::MAX), *key));

    let mut claims = Claims::default();
    let mut desired = DesiredState::default();
    let mut skipped: Vec<Skipped> = model.skipped().cloned().collect();
    for (key, spec) in services {
        for port in &spec.ports {
            let name = port_name(key, port);
            let frontends = claims.claim(&name, spec, port, &mut skipped);
            if frontends.is_empty() {
                continue;
            }
            let endpoints = endpoints(model, key, port, node_name);
            desired.services.insert(
                name,
                ServicePort {
                    frontends,
                    endpoints,
                },
            );
        }
    }
    skipped.sort();
    Compiled { desired, skipped }
}

fn port_name(key: &ObjectKey, port: &Port) -> ServicePortName {
    ServicePortName {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        port: port.name.clone(),
    }
}

/// Who has which frontend.
#[derive(Default)]
struct Claims(BTreeMap<Frontend, ServicePortName>);

impl Claims {
    /// The frontends of a port that nobody has claimed before.
    fn claim(
        &mut self,
        name: &ServicePortName,
        spec: &ServiceSpec,
        port: &Port,
        skipped: &mut Vec<Skipped>,
    ) -> Vec<Frontend> {
        let mut won = Vec::new();
        for &addr in &spec.cluster_ips {
            let kind = FrontendKind::ClusterIp;
            let frontend = Frontend {
                addr,
                port: port.port,
                protocol: port.protocol,
                kind,
            };
            if let Some(winner) = self.0.get(&frontend) {
                if winner != name {
                    skipped.push(contested(name, port, frontend, winner.clone()));
                }
                continue;
            }
            self.0.insert(frontend, name.clone());
            won.push(frontend);
        }
        won.sort();
        won
    }
}

fn contested(
    loser: &ServicePortName,
    port: &Port,
    frontend: Frontend,
    winner: ServicePortName,
) -> Skipped {
    Skipped {
        kind: Kind::Service,
        object: ObjectKey::new(loser.namespace.clone(), loser.name.clone()),
        field: format!("spec.ports[{}]", port.index),
        reason: SkipReason::Contested { frontend, winner },
    }
}

/// The endpoints that may answer for a port now, of both families.
///
/// Ready ones; when there is none in a family, those which still serve while
/// they terminate, because a late answer is better than none.
fn endpoints(model: &Model, key: &ObjectKey, port: &Port, node_name: &str) -> Vec<Endpoint> {
    let known = known_endpoints(model, key, port, node_name);
    let mut chosen = Vec::new();
    for v4 in [true, false] {
        let family = || known.iter().filter(|(addr, _)| addr.is_ipv4() == v4);
        let any_ready = family().any(|(_, e)| e.conditions.ready);
        let usable = family().filter(|(_, e)| {
            if any_ready {
                e.conditions.ready
            } else {
                e.conditions.serving && e.conditions.terminating
            }
        });
        chosen.extend(usable.map(|(&addr, e)| Endpoint {
            addr,
            local: e.local,
        }));
    }
    chosen.sort();
    chosen
}

#[derive(Clone, Copy)]
struct Known {
    conditions: Conditions,
    local: bool,
}

impl Known {
    /// Of two copies of an endpoint the greater counts: a ready one; else the
    /// one that does not terminate, because the other is a former pod's whose
    /// address has been given to a new one.
    fn rank(self) -> (bool, bool, bool, bool) {
        let Conditions {
            ready,
            serving,
            terminating,
        } = self.conditions;
        (ready, !terminating, serving, self.local)
    }
}

/// Every endpoint of a port once, whatever its conditions.
///
/// Slice ports match by name and protocol; the Service's targetPort has been
/// resolved by whoever wrote the slice, and may differ from slice to slice.
fn known_endpoints(
    model: &Model,
    key: &ObjectKey,
    port: &Port,
    node_name: &str,
) -> BTreeMap<SocketAddr, Known> {
    let mut known: BTreeMap<SocketAddr, Known> = BTreeMap::new();
    for slice in model.slices_of(key) {
        let same = |p: &&Port| p.name == port.name && p.protocol == port.protocol;
        for target in slice.ports.iter().filter(same) {
            for endpoint in &slice.endpoints {
                let new = Known {
                    conditions: endpoint.conditions,
                    local: endpoint.node_name.as_deref() == Some(node_name),
                };
                let addr = SocketAddr::new(endpoint.addr, target.port);
                let entry = known.entry(addr).or_insert(new);
                if new.rank() > entry.rank() {
                    *entry = new;
                }
            }
        }
    }
    known
}

#[cfg(test)]
mod tests;
