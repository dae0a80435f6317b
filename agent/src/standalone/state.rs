//! What the directory wants, what runs of it, and what follows from both. Pure: files,
//! statuses and times come in, objects and refusals come out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodStatus, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use sha2::{Digest as _, Sha256};

use super::cluster_ip::Allocator;
use super::endpoints;
use super::files::{Files, HEADLESS, wanted_ip};
use super::manifest::{Object, ObjectId};
use super::persist::{Kept, Restored};
use crate::local::Refusal;

/// Objects by `namespace/name`, or pods by UID.
pub(super) type Objects<K> = BTreeMap<String, Arc<K>>;

/// Everything as it is at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) pods: Objects<Pod>,
    pub(super) services: Objects<Service>,
    pub(super) slices: Objects<EndpointSlice>,
    pub(super) config_maps: Objects<ConfigMap>,
    pub(super) secrets: Objects<Secret>,
    pub(super) nodes: Objects<Node>,
}

#[derive(Debug)]
pub(super) struct State {
    node_name: String,
    pub(super) files: Files,
    /// By UID: what runs, or should, or still ends.
    pods: BTreeMap<String, Pod>,
    /// How many pods of a `namespace/name` have ended: a pod that comes back is another
    /// one, with another UID.
    generations: BTreeMap<String, u64>,
    node: Option<Node>,
    snapshot: Snapshot,
    refusals: Vec<Refusal>,
    /// There is something to save that must not be lost.
    is_unsaved: bool,
}

impl State {
    /// As it was when an earlier run of the agent ended.
    pub(super) fn new(node_name: &str, allocator: Allocator, restored: Restored) -> Self {
        Self {
            node_name: node_name.to_owned(),
            files: Files::new(allocator, restored.files),
            pods: restored.pods,
            generations: restored.generations,
            node: None,
            snapshot: Snapshot::default(),
            refusals: Vec::new(),
            is_unsaved: false,
        }
    }

    pub(super) fn set_node(&mut self, node: Node) {
        self.node = Some(node);
    }

    /// Takes a status; false if there is no such pod.
    pub(super) fn set_status(&mut self, uid: &str, status: PodStatus) -> bool {
        let Some(pod) = self.pods.get_mut(uid) else {
            return false;
        };
        pod.status = Some(status);
        true
    }

    /// The pod has ended and nothing of it is left.
    pub(super) fn finish_deletion(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            *self.generations.entry(key(&pod.metadata)).or_default() += 1;
            self.is_unsaved = true;
        }
    }

    /// What to keep for the agent's next run; losing the newest costs little.
    pub(super) fn statuses(&self) -> BTreeMap<&str, &PodStatus> {
        let pods = self.pods.iter();
        pods.filter_map(|(uid, pod)| Some((uid.as_str(), pod.status.as_ref()?)))
            .collect()
    }

    /// What must be kept before anybody acts on it, if it has changed: the next run of
    /// the agent has to know which pods are there, under which UIDs.
    pub(super) fn unsaved(&mut self) -> Option<Kept<'_>> {
        std::mem::take(&mut self.is_unsaved).then(|| Kept {
            files: self.files.in_force(),
            generations: &self.generations,
            pods: &self.pods,
        })
    }

    pub(super) fn allocator(&self) -> &Allocator {
        self.files.allocator()
    }

    /// Recomputes everything; returns it with the refusals that are new.
    pub(super) fn reconcile(&mut self, now: Timestamp) -> (Snapshot, Vec<Refusal>) {
        self.is_unsaved |= self.files.settle();
        self.reconcile_pods(now);
        let mut next = Snapshot::default();
        for (_name, file, object) in self.files.objects() {
            let key = object.id().key();
            match object {
                Object::ConfigMap(object) => {
                    next.config_maps.insert(key, Arc::new(object.clone()));
                }
                Object::Secret(object) => {
                    next.secrets.insert(key, Arc::new(object.clone()));
                }
                Object::Service(service) => {
                    let service = self.with_cluster_ip(service, file.modified);
                    next.services.insert(key, Arc::new(service));
                }
                Object::Pod(_) => {}
            }
        }
        let pods = self.pods.iter();
        next.pods = pods
            .map(|(uid, pod)| (uid.clone(), Arc::new(pod.clone())))
            .collect();
        next.slices = slices(&next);
        let node = self.node.iter();
        next.nodes = node
            .map(|node| (self.node_name.clone(), Arc::new(node.clone())))
            .collect();
        self.snapshot = keep_unchanged(next, &self.snapshot);
        let refusals = self.files.refusals();
        let known = std::mem::replace(&mut self.refusals, refusals);
        let new = self.refusals.iter().filter(|new| !known.contains(new));
        (self.snapshot.clone(), new.cloned().collect())
    }

    fn reconcile_pods(&mut self, now: Timestamp) {
        let mut wanted = BTreeMap::new();
        for (name, file, object) in self.files.objects() {
            if let Object::Pod(pod) = object {
                let pod = self.assigned(pod, name, file.modified);
                wanted.insert(pod.metadata.uid.clone().unwrap_or_default(), pod);
            }
        }
        for (uid, pod) in &mut self.pods {
            if !wanted.contains_key(uid) && pod.metadata.deletion_timestamp.is_none() {
                mark_deleted(pod, now);
                self.is_unsaved = true;
            }
        }
        for (uid, mut pod) in wanted {
            // One of its name that still ends goes first.
            if self
                .pods
                .values()
                .any(|running| same_name(&running.metadata, &pod.metadata))
            {
                continue;
            }
            pod.status = Some(PodStatus {
                phase: Some("Pending".to_owned()),
                ..PodStatus::default()
            });
            self.pods.insert(uid, pod);
            self.is_unsaved = true;
        }
    }

    /// The manifest as a pod of this node. Other content, or another file, is another
    /// pod; the same content is the same pod until that has ended.
    fn assigned(&self, manifest: &Pod, file: &str, modified: Timestamp) -> Pod {
        let mut pod = manifest.clone();
        pod.status = None;
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(self.node_name.clone());
        }
        let content = serde_json::to_vec(&pod).expect("a pod is plain data");
        let generation = self.generations.get(&key(&pod.metadata)).copied();
        let parts = [self.node_name.as_bytes(), file.as_bytes(), &content];
        pod.metadata.uid = Some(uid(&parts, generation.unwrap_or_default()));
        pod.metadata.creation_timestamp = Some(Time(whole_seconds(modified)));
        pod
    }

    fn with_cluster_ip(&self, service: &Service, modified: Timestamp) -> Service {
        let address = match wanted_ip(service) {
            Some(HEADLESS) => Some(HEADLESS.to_owned()),
            _ => self
                .files
                .address(service)
                .map(|address| address.to_string()),
        };
        let mut service = service.clone();
        let name = key(&service.metadata);
        service.metadata.uid = Some(uid(&[b"", b"Service", name.as_bytes()], 0));
        service.metadata.creation_timestamp = Some(Time(whole_seconds(modified)));
        let spec = service.spec.get_or_insert_default();
        spec.cluster_ips = address.clone().map(|address| vec![address]);
        spec.cluster_ip = address;
        service
    }
}

fn key(metadata: &ObjectMeta) -> String {
    ObjectId::of(metadata, "").key()
}

fn same_name(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.namespace == b.namespace && a.name == b.name
}

/// The form of a UUID, since consumers may parse it as one.
fn uid(parts: &[&[u8]], generation: u64) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(generation.to_be_bytes());
    let digits = format!("{:x}", hash.finalize());
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..32],
    ];
    parts.join("-")
}

fn mark_deleted(pod: &mut Pod, now: Timestamp) {
    let grace = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or_default();
    let end = now
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    pod.metadata.deletion_timestamp = Some(Time(whole_seconds(end)));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn slices(snapshot: &Snapshot) -> Objects<EndpointSlice> {
    let pods = || snapshot.pods.values().map(AsRef::as_ref);
    let services = snapshot.services.values();
    let slices = services.flat_map(|service| endpoints::slices(service, pods()));
    slices
        .map(|slice| (key(&slice.metadata), Arc::new(slice)))
        .collect()
}

/// What is equal keeps its pointer, which is how watchers see that nothing changed.
fn keep_unchanged(next: Snapshot, before: &Snapshot) -> Snapshot {
    fn keep<K: PartialEq>(next: Objects<K>, before: &Objects<K>) -> Objects<K> {
        let kept = next
            .into_iter()
            .map(|(key, object)| match before.get(&key) {
                Some(same) if *same == object => (key, Arc::clone(same)),
                _ => (key, object),
            });
        kept.collect()
    }
    Snapshot {
        pods: keep(next.pods, &before.pods),
        services: keep(next.services, &before.services),
        slices: keep(next.slices, &before.slices),
        config_maps: keep(next.config_maps, &before.config_maps),
        secrets: keep(next.secrets, &before.secrets),
        nodes: keep(next.nodes, &before.nodes),
    }
}

#[cfg(test)]
mod tests;
