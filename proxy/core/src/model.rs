//! What the API server has told us, in our own terms.
//!
//! Fed by apply, delete and reset (the full set after a relist). The state
//! depends only on the objects that exist now, never on how they came: a slice
//! that was re-labelled has left its former Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::ingest::{self, Ingested, ServiceSpec, SliceSpec};
use crate::skipped::{ObjectKey, Skipped};

/// All Services and EndpointSlices, ingested.
///
/// Mutating calls tell whether anything that matters has changed; an edit of
/// labels or annotations does not.
#[derive(Clone, Debug, Default)]
pub struct Model {
    services: BTreeMap<ObjectKey, Ingested<ServiceSpec>>,
    slices: BTreeMap<ObjectKey, Ingested<SliceSpec>>,
    /// Slices by the Service that they name, sorted: nearly always one, and a set has
    /// room for eleven from the beginning.
    slices_of: BTreeMap<ObjectKey, Vec<ObjectKey>>,
    /// Services that may mean something else than when this was last emptied.
    changed: BTreeSet<ObjectKey>,
    nodes: Names,
}

/// Names of nodes, each in memory once. Those that nobody has any more go when the others
/// have doubled.
#[derive(Clone, Debug, Default)]
struct Names {
    all: BTreeSet<Arc<str>>,
    /// How many were in use when that was last looked at.
    used: usize,
}

impl Names {
    const FEW: usize = 64;

    /// Makes all who have the same name share it.
    fn share(&mut self, slice: &mut SliceSpec) {
        for name in slice
            .endpoints
            .iter_mut()
            .filter_map(|e| e.node_name.as_mut())
        {
            match self.all.get(&**name) {
                Some(known) => name.clone_from(known),
                None => _ = self.all.insert(name.clone()),
            }
        }
        if self.all.len() > Self::FEW + 2 * self.used {
            self.all.retain(|name| Arc::strong_count(name) > 1);
            self.used = self.all.len();
        }
    }
}

impl Model {
    /// Without any object.
    pub fn new() -> Self {
        Self::default()
    }

    /// A Service was added or changed.
    pub fn apply_service(&mut self, object: &Service) -> bool {
        let new = ingest::service(object);
        let key = ObjectKey::of(&object.metadata);
        if self.services.get(&key) == Some(&new) {
            return false;
        }
        self.changed.insert(key.clone());
        self.services.insert(key, new);
        true
    }

    /// A Service was deleted, or left the watch's selector.
    pub fn delete_service(&mut self, key: &ObjectKey) -> bool {
        if self.services.remove(key).is_none() {
            return false;
        }
        self.changed.insert(key.clone());
        true
    }

    /// Removes every Service that is not named: the end of a relist whose
    /// objects were applied one by one.
    pub fn retain_services(&mut self, keep: &BTreeSet<ObjectKey>) -> bool {
        let gone = self.services.keys().filter(|key| !keep.contains(key));
        let gone: Vec<ObjectKey> = gone.cloned().collect();
        for key in &gone {
            self.delete_service(key);
        }
        !gone.is_empty()
    }

    /// These are all Services; others which were known have vanished.
    pub fn reset_services<'a>(&mut self, objects: impl IntoIterator<Item = &'a Service>) -> bool {
        let mut keep = BTreeSet::new();
        let mut changed = false;
        for object in objects {
            changed |= self.apply_service(object);
            keep.insert(ObjectKey::of(&object.metadata));
        }
        self.retain_services(&keep) || changed
    }

    /// An EndpointSlice was added or changed.
    pub fn apply_slice(&mut self, object: &EndpointSlice) -> bool {
        let mut new = ingest::endpoint_slice(object);
        let key = ObjectKey::of(&object.metadata);
        if self.slices.get(&key) == Some(&new) {
            return false;
        }
        self.delete_slice(&key);
        if let Some(slice) = &mut new.value {
            self.nodes.share(slice);
            self.changed.insert(slice.service.clone());
            let siblings = self.slices_of.entry(slice.service.clone()).or_default();
            if let Err(place) = siblings.binary_search(&key) {
                siblings.reserve_exact(1);
                siblings.insert(place, key.clone());
            }
        }
        self.slices.insert(key, new);
        true
    }

    /// An EndpointSlice was deleted, or left the watch's selector.
    pub fn delete_slice(&mut self, key: &ObjectKey) -> bool {
        let Some(old) = self.slices.remove(key) else {
            return false;
        };
        let Some(slice) = old.value else { return true };
        if let Some(siblings) = self.slices_of.get_mut(&slice.service) {
            siblings.retain(|sibling| sibling != key);
            if siblings.is_empty() {
                self.slices_of.remove(&slice.service);
            }
        }
        self.changed.insert(slice.service);
        true
    }

    /// Removes every EndpointSlice that is not named: the end of a relist whose
    /// objects were applied one by one.
    pub fn retain_slices(&mut self, keep: &BTreeSet<ObjectKey>) -> bool {
        let gone: Vec<ObjectKey> = self
            .slices
            .keys()
            .filter(|key| !keep.contains(key))
            .cloned()
            .collect();
        for key in &gone {
            self.delete_slice(key);
        }
        !gone.is_empty()
    }

    /// These are all EndpointSlices; others which were known have vanished.
    pub fn reset_slices<'a>(
        &mut self,
        objects: impl IntoIterator<Item = &'a EndpointSlice>,
    ) -> bool {
        let mut keep = BTreeSet::new();
        let mut changed = false;
        for object in objects {
            changed |= self.apply_slice(object);
            keep.insert(ObjectKey::of(&object.metadata));
        }
        self.retain_slices(&keep) || changed
    }

    /// Services that were touched since the last call, by an event on them or on one of
    /// their slices; all there are after the first lists.
    pub fn take_changed(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.changed)
    }

    /// A Service that is served at least in part.
    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceSpec> {
        self.services.get(key)?.value.as_ref()
    }

    /// Services that are served at least in part, by name.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectKey, &ServiceSpec)> {
        self.services
            .iter()
            .filter_map(|(key, s)| Some((key, s.value.as_ref()?)))
    }

    /// The slices that name a Service.
    pub fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &SliceSpec> + use<'_> {
        let keys = self.slices_of.get(service).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key)?.value.as_ref())
    }

    /// The names of these slices.
    pub fn slice_keys_of(&self, service: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.slices_of.get(service).into_iter().flatten()
    }

    /// What single objects leave out; contested frontends are
    /// [`compile`](crate::compile())'s to find.
    pub fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        let services = self.services.values().flat_map(|s| &s.skipped);
        services.chain(self.slices.values().flat_map(|s| &s.skipped))
    }
}

#[cfg(test)]
mod tests;
