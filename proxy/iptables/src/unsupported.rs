//! What this node's programs cannot do.

use seaway_proxy_core::desired::{DesiredState, Family, ServicePort, ServicePortName};
use seaway_proxy_core::skipped::{Kind, ObjectKey, SkipReason, Skipped};

use crate::lacking::Lacking;
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
        let mut room = Room::new(ipset);
        for (name, port) in &desired.family(family).services {
            if !families.contains(&family) {
                push(
                    &mut found,
                    name,
                    port,
                    "ip6tables does not work on this node",
                );
            } else if let Some(module) = lacking.needed_by(port) {
                let name_of_module = module.name();
                let why = format!("this node's kernel does not have {name_of_module}");
                push(&mut found, name, port, &why);
            } else if port.affinity.is_some() && room.take(port).is_none() {
                let why = if ipset {
                    "served without session affinity, there are too many endpoints that have it"
                } else {
                    "served without session affinity, ipset does not work on this node"
                };
                push(&mut found, name, port, why);
            }
        }
    }
    found
}

fn push(found: &mut Vec<Skipped>, name: &ServicePortName, port: &ServicePort, why: &str) {
    found.extend(port.frontends.iter().map(|frontend| Skipped {
        kind: Kind::Service,
        object: ObjectKey::new(name.namespace.clone(), name.name.clone()),
        field: format!("spec.ports[name={:?}]", name.port),
        reason: SkipReason::Backend {
            frontend: *frontend,
            why: why.to_owned(),
        },
    }));
}

#[cfg(test)]
mod tests;
