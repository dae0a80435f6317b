//! What the directory wants, what runs of it, and what follows from both. Pure: files,
//! statuses and times come in, objects and problems come out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodStatus, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use sha2::{Digest as _, Sha256};

use super::cluster_ip::Allocator;
use super::endpoints;
use super::manifest::Object;

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

/// A file that has been read without an error.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) objects: Vec<Object>,
    /// When it was last written: objects are as old as their file.
    pub(super) modified: Timestamp,
}

/// An object of a good file that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) file: String,
    pub(super) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.text)
    }
}

#[derive(Debug)]
pub(super) struct State {
    node_name: String,
    files: BTreeMap<String, File>,
    allocator: Allocator,
    /// By UID: what runs, or should, or still ends.
    pods: BTreeMap<String, Pod>,
    /// Statuses of an earlier run of the agent, until their pods turn up.
    remembered: BTreeMap<String, PodStatus>,
    node: Option<Node>,
    snapshot: Snapshot,
    problems: BTreeSet<Problem>,
}

/// What the files say, before anything is known of what runs.
#[derive(Default)]
struct Desired<'a> {
    /// By kind and `namespace/name`: file and object.
    objects: BTreeMap<(&'static str, String), (&'a str, &'a File, &'a Object)>,
    problems: BTreeSet<Problem>,
}

impl State {
    pub(super) fn new(
        node_name: &str,
        allocator: Allocator,
        remembered: BTreeMap<String, PodStatus>,
    ) -> Self {
        Self {
            node_name: node_name.to_owned(),
            files: BTreeMap::new(),
            allocator,
            pods: BTreeMap::new(),
            remembered,
            node: None,
            snapshot: Snapshot::default(),
            problems: BTreeSet::new(),
        }
    }

    pub(super) fn set_file(&mut self, name: &str, file: File) {
        self.files.insert(name.to_owned(), file);
    }

    pub(super) fn remove_file(&mut self, name: &str) {
        self.files.remove(name);
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
        self.pods.remove(uid);
    }

    /// What to keep for the agent's next run.
    pub(super) fn statuses(&self) -> BTreeMap<&str, &PodStatus> {
        let pods = self.pods.iter();
        pods.filter_map(|(uid, pod)| Some((uid.as_str(), pod.status.as_ref()?)))
            .collect()
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Recomputes everything; returns it with the problems that are new.
    pub(super) fn reconcile(&mut self, now: Timestamp) -> (Snapshot, Vec<Problem>) {
        let files = std::mem::take(&mut self.files);
        let mut desired = Desired::of(&files);
        self.reconcile_pods(&desired, now);
        let services = self.services(&mut desired);
        let mut next = Snapshot {
            services,
            ..Snapshot::default()
        };
        for ((_kind, key), (_name, _file, object)) in &desired.objects {
            match *object {
                Object::ConfigMap(object) => {
                    next.config_maps
                        .insert(key.clone(), Arc::new(object.clone()));
                }
                Object::Secret(object) => {
                    next.secrets.insert(key.clone(), Arc::new(object.clone()));
                }
                Object::Pod(_) | Object::Service(_) => {}
            }
        }
        let pods = self
            .pods
            .iter()
            .map(|(uid, pod)| (uid.clone(), Arc::new(pod.clone())));
        next.pods = pods.collect();
        next.slices = slices(&next);
        let node = self
            .node
            .iter()
            .map(|node| (self.node_name.clone(), Arc::new(node.clone())));
        next.nodes = node.collect();
        let problems = desired.problems;
        let new = problems.difference(&self.problems).cloned().collect();
        self.files = files;
        self.problems = problems;
        self.snapshot = keep_unchanged(next, &self.snapshot);
        (self.snapshot.clone(), new)
    }

    fn reconcile_pods(&mut self, desired: &Desired<'_>, now: Timestamp) {
        let mut wanted = BTreeMap::new();
        for (name, file, object) in desired.objects.values() {
            if let Object::Pod(pod) = *object {
                let pod = self.assigned(pod, name, file.modified);
                wanted.insert(pod.metadata.uid.clone().unwrap_or_default(), pod);
            }
        }
        for (uid, pod) in &mut self.pods {
            if !wanted.contains_key(uid) && pod.metadata.deletion_timestamp.is_none() {
                mark_deleted(pod, now);
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
            pod.status = self.remembered.remove(&uid).or(Some(PodStatus {
                phase: Some("Pending".to_owned()),
                ..PodStatus::default()
            }));
            self.pods.insert(uid, pod);
        }
    }

    /// The manifest as a pod of this node. Other content, or another file, is another
    /// pod; the same content is the same pod after a restart of the agent, too.
    fn assigned(&self, manifest: &Pod, file: &str, modified: Timestamp) -> Pod {
        let mut pod = manifest.clone();
        pod.status = None;
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(self.node_name.clone());
        }
        let content = serde_json::to_vec(&pod).expect("a pod is plain data");
        pod.metadata.uid = Some(uid(&self.node_name, file, &content));
        pod.metadata.creation_timestamp = Some(Time(whole_seconds(modified)));
        pod
    }

    fn services(&mut self, desired: &mut Desired<'_>) -> Objects<Service> {
        let mut wanted: Vec<_> = desired
            .objects
            .iter()
            .filter_map(|((_kind, key), (name, file, object))| match *object {
                Object::Service(service) => Some((key.clone(), *name, *file, service.as_ref())),
                _ => None,
            })
            .collect();
        for gone in self.snapshot.services.keys() {
            if !wanted.iter().any(|(key, ..)| key == gone) {
                self.allocator.release(gone);
            }
        }
        // Who asks for an address comes before who takes any.
        wanted.sort_by_key(|(_key, _name, _file, service)| wanted_ip(service).is_none());
        let mut services = Objects::new();
        for (key, name, file, service) in wanted {
            if wanted_ip(service) == Some("None") {
                services.insert(
                    key,
                    Arc::new(with_cluster_ip(service, "None", file.modified)),
                );
                continue;
            }
            match self.allocator.allocate(&key, wanted_ip(service)) {
                Ok(address) => {
                    let text = Ipv4Addr::to_string(&address);
                    services.insert(
                        key,
                        Arc::new(with_cluster_ip(service, &text, file.modified)),
                    );
                }
                Err(error) => {
                    let text = format!("Service {key}: spec.clusterIP: {error}");
                    desired.problems.insert(Problem {
                        file: name.to_owned(),
                        text,
                    });
                }
            }
        }
        services
    }
}

impl<'a> Desired<'a> {
    /// Of two files with the same object the first in alphabetical order has it.
    fn of(files: &'a BTreeMap<String, File>) -> Self {
        let mut desired = Self::default();
        for (name, file) in files {
            for object in &file.objects {
                let (kind, metadata) = identity(object);
                let key = (kind, key(metadata));
                if let Some((first, ..)) = desired.objects.get(&key) {
                    let text = format!("{kind} {}: is already in {first}", key.1);
                    desired.problems.insert(Problem {
                        file: name.clone(),
                        text,
                    });
                    continue;
                }
                desired.objects.insert(key, (name, file, object));
            }
        }
        desired
    }
}

fn identity(object: &Object) -> (&'static str, &ObjectMeta) {
    match object {
        Object::Pod(pod) => ("Pod", &pod.metadata),
        Object::Service(service) => ("Service", &service.metadata),
        Object::ConfigMap(config_map) => ("ConfigMap", &config_map.metadata),
        Object::Secret(secret) => ("Secret", &secret.metadata),
    }
}

fn key(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!(
        "{namespace}/{}",
        metadata.name.as_deref().unwrap_or_default()
    )
}

fn same_name(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.namespace == b.namespace && a.name == b.name
}

/// The form of a UUID, since consumers may parse it as one.
fn uid(node: &str, file: &str, content: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [node.as_bytes(), file.as_bytes(), content] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
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

fn wanted_ip(service: &Service) -> Option<&str> {
    service
        .spec
        .as_ref()?
        .cluster_ip
        .as_deref()
        .filter(|ip| !ip.is_empty())
}

fn with_cluster_ip(service: &Service, address: &str, modified: Timestamp) -> Service {
    let mut service = service.clone();
    let content = key(&service.metadata);
    service.metadata.uid = Some(uid("", "Service", content.as_bytes()));
    service.metadata.creation_timestamp = Some(Time(whole_seconds(modified)));
    let spec = service.spec.get_or_insert_default();
    spec.cluster_ip = Some(address.to_owned());
    spec.cluster_ips = Some(vec![address.to_owned()]);
    service
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
