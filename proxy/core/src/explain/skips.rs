//! What is not programmed and has to do with an address.

use super::{Facts, Left, Surroundings, Target, is_of_node};
use crate::desired::{FamilyState, Frontend, FrontendKind, ServicePortName};
use crate::skipped::{Kind, ObjectKey, SkipReason, Skipped};

/// Skipped parts that want this address, and those of the Service that has it.
pub(super) fn touching(
    facts: Facts<'_>,
    target: Target,
    name: Option<&ServicePortName>,
) -> Vec<Left> {
    let key = name.map(|name| ObjectKey::new(&name.namespace, &name.name));
    let own = |skip: &Skipped| {
        key.as_ref().is_some_and(|key| match skip.kind {
            Kind::Service => skip.object == *key,
            Kind::EndpointSlice => facts.model.slice_keys_of(key).any(|k| *k == skip.object),
        })
    };
    let concerns = |skip: &&Skipped| match &skip.reason {
        // What others lost or a backend leaves out elsewhere is another address's matter.
        SkipReason::Contested { frontend, .. } | SkipReason::Backend { frontend, .. } => {
            wants(frontend, facts.surroundings, target)
        }
        reason => names(reason, target) || own(skip),
    };
    let found = facts.skipped.iter().filter(concerns);
    found
        .map(|skip| Left {
            kind: skip.kind.to_string(),
            object: skip.object.to_string(),
            field: skip.field.clone(),
            reason: skip.reason.to_string(),
        })
        .collect()
}

fn wants(frontend: &Frontend, surroundings: &Surroundings, target: Target) -> bool {
    let ip = target.addr.ip();
    let addr = match frontend.kind {
        FrontendKind::NodePort => {
            is_of_node(surroundings, ip) && frontend.addr.is_ipv4() == ip.is_ipv4()
        }
        _ => frontend.addr == ip,
    };
    addr && frontend.port == target.addr.port() && frontend.protocol == target.protocol
}

/// Whether a reason is about the address itself.
fn names(reason: &SkipReason, target: Target) -> bool {
    match reason {
        SkipReason::NoClusterIpOfFamily { value, .. }
        | SkipReason::ForbiddenAddress { value, .. }
        | SkipReason::BadAddress { value } => value.parse() == Ok(target.addr.ip()),
        _ => false,
    }
}

/// What may be meant instead, if nobody is served.
pub(super) fn notes(
    half: &FamilyState,
    surroundings: &Surroundings,
    target: Target,
    served: bool,
) -> Vec<String> {
    if served {
        return Vec::new();
    }
    let ip = target.addr.ip();
    let mut notes = Vec::new();
    for (name, port) in &half.services {
        for frontend in &port.frontends {
            let node_port = frontend.kind == FrontendKind::NodePort;
            if node_port && frontend.port == target.addr.port() {
                let why = if frontend.protocol != target.protocol {
                    "of another protocol"
                } else if is_of_node(surroundings, ip) {
                    "but NodePorts are not served at this address"
                } else {
                    "but this is no address of this node"
                };
                notes.push(format!("{frontend} is {name}'s, {why}"));
            } else if !node_port && frontend.addr == ip {
                notes.push(format!("{frontend} is {name}'s"));
            }
        }
    }
    notes
}
