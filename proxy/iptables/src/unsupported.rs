//! What this node's programs cannot do.

use seaway_proxy_core::desired::{DesiredState, Family, ServicePort, ServicePortName};
use seaway_proxy_core::skipped::{Kind, ObjectKey, SkipReason, Skipped};

use crate::lacking::{Lacking, Module};
use crate::sets::Room;

/// Frontends that are not served, or not as they should be.
pub(crate) fn of(
    desired: &DesiredState,
    families: &[Family],
    ipset: bool,
    lacking: &Lacking,
) -> Vec<Skipped> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let mut room = Room::new(ipset && !lacking.includes(Module::Sets));
        for (name, port) in &desired.family(family).services {
            if !families.contains(&family) {
                let why = "ip6tables does not work on this node";
                push(&mut found, name, port, why, false);
            } else if let Some(module) = lacking.needed_by(port) {
                push(&mut found, name, port, &is_missing(module), false);
            } else if port.affinity.is_some() && room.take(port).is_none() {
                let why = if !ipset {
                    "ipset does not work on this node".to_owned()
                } else if lacking.includes(Module::Sets) {
                    is_missing(Module::Sets)
                } else {
                    "there are too many endpoints that have it".to_owned()
                };
                let why = format!("served without session affinity, {why}");
                push(&mut found, name, port, &why, true);
            }
        }
    }
    found
}

fn is_missing(module: Module) -> String {
    format!("this node's kernel does not have {}", module.name())
}

fn push(
    found: &mut Vec<Skipped>,
    name: &ServicePortName,
    port: &ServicePort,
    why: &str,
    served: bool,
) {
    found.extend(port.frontends.iter().map(|frontend| Skipped {
        kind: Kind::Service,
        object: ObjectKey::new(name.namespace.clone(), name.name.clone()),
        field: format!("spec.ports[name={:?}]", name.port),
        reason: SkipReason::Backend {
            frontend: *frontend,
            why: why.to_owned(),
            served,
        },
    }));
}

#[cfg(test)]
mod tests;
