//! The desired state kept up to date, one Service at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::bids::Bids;
use super::claims::external_ips_off;
use super::{push_service, report_ranges, set_node};
use crate::desired::{DesiredState, Family, ServicePortName};
use crate::model::Model;
use crate::node::Node;
use crate::skipped::{ObjectKey, Skipped};

/// Follows a [`Model`]: comes to what [`compile`](super::compile) gives, at the cost of
/// what has changed. A property test holds the two equal.
#[derive(Clone, Debug)]
pub struct Compiler {
    node: Node,
    bids: Bids,
    desired: DesiredState,
    /// What was left out, by Service; those of which nothing was are not here.
    skipped: BTreeMap<ObjectKey, Vec<Skipped>>,
}

impl Compiler {
    /// For `node`, without any Service.
    pub fn new(node: Node) -> Self {
        let mut desired = DesiredState::default();
        set_node(&mut desired, &node);
        Self {
            node,
            bids: Bids::default(),
            desired,
            skipped: BTreeMap::new(),
        }
    }

    /// Takes what has changed in `model` since the last call, and in the node. Gives the
    /// Services that were looked at again: those and whoever contests a frontend with one.
    pub fn update(&mut self, model: &mut Model, node: &Node) -> BTreeSet<ObjectKey> {
        let mut changed = model.take_changed();
        if self.node != *node {
            // Locality, zone, sources: nearly everything may be different.
            *self = Self::new(node.clone());
            changed.extend(model.services().map(|(key, _)| key.clone()));
        }
        let mut concerned = BTreeSet::new();
        for key in &changed {
            concerned.extend(self.bids.replace(key, model.service(key), node));
        }
        changed.append(&mut concerned);
        for key in &changed {
            self.rebuild(key, model);
        }
        changed
    }

    /// What the kernel should do.
    pub fn desired(&self) -> &DesiredState {
        &self.desired
    }

    /// Everything that is not programmed, sorted; `model` is the one last followed.
    pub fn skipped(&self, model: &Model) -> Vec<Skipped> {
        let own = self.skipped.values().flatten();
        let mut all: Vec<Skipped> = model.skipped().chain(own).cloned().collect();
        all.sort();
        all
    }

    fn rebuild(&mut self, key: &ObjectKey, model: &Model) {
        self.remove(key);
        let Some(spec) = model.service(key) else {
            return;
        };
        let mut outcome = self.bids.outcome(key);
        let mut skipped = std::mem::take(&mut outcome.contested);
        if !self.node.external_ips {
            skipped.extend(external_ips_off(key, spec));
        }
        report_ranges(key, spec, &mut skipped);
        if !skipped.is_empty() {
            self.skipped.insert(key.clone(), skipped);
        }
        let mut take = |family, name: &ServicePortName| outcome.take(family, name);
        push_service(&mut self.desired, model, &self.node, key, spec, &mut take);
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.skipped.remove(key);
        for family in Family::ALL {
            let half = self.desired.family_mut(family);
            half.health_checks.remove(key);
            for name in ports_of(half.services.range(first_port(key)..), key) {
                half.services.remove(&name);
            }
        }
    }
}

/// The ports of a Service, which lie side by side in the order of names.
fn ports_of<'a, T: 'a>(
    from_first: impl Iterator<Item = (&'a ServicePortName, T)>,
    key: &ObjectKey,
) -> Vec<ServicePortName> {
    from_first
        .map(|(name, _)| name)
        .take_while(|name| name.namespace == key.namespace && name.name == key.name)
        .cloned()
        .collect()
}

/// No port of the Service comes before this.
fn first_port(key: &ObjectKey) -> ServicePortName {
    ServicePortName {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        port: String::new(),
    }
}
