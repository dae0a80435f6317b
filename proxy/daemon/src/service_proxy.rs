//! Services and EndpointSlices into the model; the model into the kernel.
//!
//! ```text
//! watch of Services ───────┐              ┌── Progress (watch channel)
//! watch of EndpointSlices ─┼─► Feed(Model)┴─► sync loop ─► Backend
//! watch of Nodes ──────────┘
//! ```
//!
//! The watches never wait for the kernel. The loop never starts before the first two
//! have delivered everything once; it waits a while for this node's own object.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::runtime::watcher::Event;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::{Model, ObjectKey};
use tokio::sync::watch;
use tracing::{debug, info};

use crate::metrics::{Changes, Metrics};
use crate::nodes::OwnNode;

pub(crate) mod node;
mod round;
mod rounds;
pub(crate) mod skips;
pub(crate) mod sync;
#[cfg(test)]
pub(crate) mod tests;

/// What the sync loop waits on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    services_listed: bool,
    slices_listed: bool,
    /// Grows with every change that matters.
    pub(crate) generation: u64,
}

impl Progress {
    /// Whether the kernel may be written: everything has been delivered once.
    pub(crate) fn in_sync(self) -> bool {
        self.services_listed && self.slices_listed
    }
}

/// The model, and who is told when it changes.
#[derive(Debug)]
pub(crate) struct Feed {
    model: Mutex<Model>,
    /// As last seen; a deleted Node is not forgotten.
    node: Mutex<Option<OwnNode>>,
    progress: watch::Sender<Progress>,
    /// Of changes that are not in the kernel yet.
    triggers: Mutex<Vec<Trigger>>,
    started: Timestamp,
    metrics: Metrics,
}

/// When what an EndpointSlice says came about, by its controller's annotation.
type Trigger = (Family, Timestamp);

/// As far as they are remembered while nothing can be programmed.
const TRIGGERS_MAX: usize = 4096;
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A kind that the model is made of.
pub(crate) trait Followed: Resource {
    const KIND: &'static str;
    fn apply(&self, model: &mut Model) -> bool;
    fn delete(model: &mut Model, key: &ObjectKey) -> bool;
    fn retain(model: &mut Model, keep: &BTreeSet<ObjectKey>) -> bool;
    fn listed(progress: &mut Progress) -> &mut bool;
    fn changes(metrics: &Metrics) -> &Changes;
    fn trigger(&self) -> Option<Trigger> {
        None
    }
}

impl Followed for Service {
    const KIND: &'static str = "Services";
    fn apply(&self, model: &mut Model) -> bool {
        model.apply_service(self)
    }
    fn delete(model: &mut Model, key: &ObjectKey) -> bool {
        model.delete_service(key)
    }
    fn retain(model: &mut Model, keep: &BTreeSet<ObjectKey>) -> bool {
        model.retain_services(keep)
    }
    fn listed(progress: &mut Progress) -> &mut bool {
        &mut progress.services_listed
    }
    fn changes(metrics: &Metrics) -> &Changes {
        &metrics.service_changes
    }
}

impl Followed for EndpointSlice {
    const KIND: &'static str = "EndpointSlices";
    fn apply(&self, model: &mut Model) -> bool {
        model.apply_slice(self)
    }
    fn delete(model: &mut Model, key: &ObjectKey) -> bool {
        model.delete_slice(key)
    }
    fn retain(model: &mut Model, keep: &BTreeSet<ObjectKey>) -> bool {
        model.retain_slices(keep)
    }
    fn listed(progress: &mut Progress) -> &mut bool {
        &mut progress.slices_listed
    }
    fn changes(metrics: &Metrics) -> &Changes {
        &metrics.endpoint_changes
    }
    fn trigger(&self) -> Option<Trigger> {
        let family = match self.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        let annotations = self.metadata.annotations.as_ref()?;
        let time = annotations.get(TRIGGER_TIME)?.parse().ok()?;
        Some((family, time))
    }
}

impl Feed {
    pub(crate) fn new(metrics: Metrics) -> Arc<Self> {
        let progress = watch::Sender::default();
        Arc::new(Self {
            model: Mutex::default(),
            node: Mutex::default(),
            progress,
            triggers: Mutex::default(),
            started: Timestamp::now(),
            metrics,
        })
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        // The model's calls leave it whole, so a panic elsewhere does not spoil it.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next round is measured by, once.
    fn triggers(&self) -> Vec<Trigger> {
        let mut triggers = self.triggers.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut triggers)
    }

    /// The round has failed, so the next one is measured by them, too.
    fn not_programmed(&self, triggers: Option<Vec<Trigger>>) {
        self.remember(triggers.into_iter().flatten());
    }

    fn remember(&self, new: impl IntoIterator<Item = Trigger>) {
        let mut triggers = self.triggers.lock().unwrap_or_else(PoisonError::into_inner);
        triggers.extend(new);
        triggers.truncate(TRIGGERS_MAX);
    }

    /// This node, if it has been seen.
    pub(crate) fn node(&self) -> Option<OwnNode> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.clone()
    }

    /// This node's object has come, or come again.
    pub(crate) fn node_seen(&self, node: OwnNode) {
        let mut known = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == Some(&node) {
            return;
        }
        debug!(?node, "This node is known");
        *known = Some(node);
        drop(known);
        self.metrics.sync_queued();
        self.progress
            .send_modify(|progress| progress.generation += 1);
    }

    /// What takes the events of one kind.
    pub(crate) fn intake<K: Followed>(self: &Arc<Self>) -> impl FnMut(Event<K>) + Send + use<K> {
        let feed = self.clone();
        let mut listing = BTreeSet::new();
        move |event| feed.take::<K>(event, &mut listing)
    }

    /// A relist is applied object by object; those that it did not name go at its end.
    fn take<K: Followed>(&self, event: Event<K>, listing: &mut BTreeSet<ObjectKey>) {
        let trigger = match &event {
            Event::InitApply(object) | Event::Apply(object) => object.trigger(),
            _ => None,
        };
        let mut model = self.model();
        let (changed, done) = match event {
            Event::Init => {
                listing.clear();
                (false, false)
            }
            Event::InitApply(object) => {
                listing.insert(ObjectKey::of(object.meta()));
                (object.apply(&mut model), false)
            }
            Event::InitDone => (K::retain(&mut model, &std::mem::take(listing)), true),
            Event::Apply(object) => (object.apply(&mut model), false),
            Event::Delete(object) => (K::delete(&mut model, &ObjectKey::of(object.meta())), false),
        };
        drop(model);
        if changed {
            K::changes(&self.metrics).arrived();
            self.metrics.sync_queued();
            // What came about before us is no measure of ours.
            self.remember(trigger.filter(|(_, time)| *time >= self.started));
        }
        if done {
            debug!(kind = K::KIND, "Received all objects");
        }
        self.progress.send_if_modified(|progress| {
            let first = done && !std::mem::replace(K::listed(progress), true);
            if first && progress.in_sync() {
                info!("Services and EndpointSlices are in sync");
            }
            progress.generation += u64::from(changed);
            first || changed
        });
    }
}
