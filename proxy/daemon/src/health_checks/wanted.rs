//! What load balancers may be told.

use std::collections::{BTreeMap, BTreeSet};

use seaway_proxy_core::desired::{
    DesiredState, Family, FamilyState, Frontend, HealthCheck, NodePortAddresses, ServicePortName,
};
use seaway_proxy_core::skipped::SkipReason;
use seaway_proxy_core::{ObjectKey, Skipped};

/// What the last good round has put into the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// With how many endpoints there are.
    listeners: BTreeMap<Listener, usize>,
    /// Of each family.
    node_ports: [NodePortAddresses; 2],
}

/// One server, before its addresses are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listener {
    pub(super) family: Family,
    pub(super) service: ObjectKey,
    pub(super) port: u16,
}

impl Wanted {
    /// Who asks over a family that this node does not serve finds nobody, and of a Service of
    /// which this node serves nothing there is no endpoint: traffic would be lost here.
    pub(crate) fn of(desired: &DesiredState, served: &[Family], unsupported: &[Skipped]) -> Self {
        let left_out: BTreeSet<&Frontend> = unsupported.iter().filter_map(left_out).collect();
        let mut listeners = BTreeMap::new();
        for &family in served {
            let half = desired.family(family);
            for (service, &HealthCheck { port, endpoints }) in &half.health_checks {
                let serves = serves(half, service, &left_out);
                let listener = Listener {
                    family,
                    service: service.clone(),
                    port,
                };
                listeners.insert(listener, if serves { endpoints } else { 0 });
            }
        }
        Self {
            listeners,
            node_ports: Family::ALL.map(|family| desired.family(family).node_ports.clone()),
        }
    }

    /// The same, but for a family that could not be written: of that what was `known` counts.
    pub(crate) fn without_news_of(mut self, failed: Family, known: &Self) -> Self {
        self.listeners.retain(|one, _| one.family != failed);
        let kept = known.listeners().filter(|(one, _)| one.family == failed);
        self.listeners
            .extend(kept.map(|(one, count)| (one.clone(), count)));
        let halves = self.node_ports.iter_mut().zip(&known.node_ports);
        for ((own, known), _) in halves.zip(Family::ALL).filter(|(_, of)| *of == failed) {
            own.clone_from(known);
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = (&Listener, usize)> {
        self.listeners.iter().map(|(one, count)| (one, *count))
    }

    pub(super) fn addresses(&self, family: Family) -> &NodePortAddresses {
        let [v4, v6] = &self.node_ports;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Family, Service and number of endpoints of each listener.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Vec<(Family, String, usize)> {
        self.listeners()
            .map(|(one, count)| (one.family, one.service.to_string(), count))
            .collect()
    }
}

/// What no client is answered on.
fn left_out(skipped: &Skipped) -> Option<&Frontend> {
    match &skipped.reason {
        SkipReason::Backend {
            frontend,
            served: false,
            ..
        } => Some(frontend),
        _ => None,
    }
}

/// Whether anything of the Service is served. Of one without frontends nothing is left out.
fn serves(half: &FamilyState, service: &ObjectKey, left_out: &BTreeSet<&Frontend>) -> bool {
    if left_out.is_empty() {
        return true;
    }
    let first = ServicePortName {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        port: String::new(),
    };
    let ports = half.services.range(first..);
    let own = ports
        .take_while(|(name, _)| name.namespace == service.namespace && name.name == service.name);
    let mut frontends = own.flat_map(|(_, port)| &port.frontends).peekable();
    frontends.peek().is_none() || frontends.any(|own| !left_out.contains(own))
}

#[cfg(test)]
mod tests {
    use seaway_proxy_core::desired::{FrontendKind, Protocol};
    use seaway_proxy_core::skipped::Kind;

    use super::*;

    #[test]
    fn a_service_without_frontends_is_not_left_out_with_another() {
        let mut desired = DesiredState::default();
        let check = HealthCheck {
            port: 32000,
            endpoints: 2,
        };
        let checks = &mut desired.v4.health_checks;
        checks.insert(ObjectKey::new("default", "web"), check);
        let frontend = Frontend {
            addr: [10, 96, 0, 1].into(),
            port: 80,
            protocol: Protocol::Sctp,
            kind: FrontendKind::ClusterIp,
        };
        let other = Skipped {
            kind: Kind::Service,
            object: ObjectKey::new("default", "other"),
            field: "spec.ports".to_owned(),
            reason: SkipReason::Backend {
                frontend,
                why: "for a test".to_owned(),
                served: false,
            },
        };
        let wanted = Wanted::of(&desired, &Family::ALL, &[other]);
        let want = (Family::V4, "default/web".to_owned(), 2);
        assert_eq!(wanted.counts(), [want]);
    }
}
