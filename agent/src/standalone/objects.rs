//! The directory as the pod workers see it.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodStatus, Secret, Service};

use super::shared::Shared;
use super::state;
use crate::api::is_for_environment;
use crate::events::EventSink;
use crate::objects::{ObjectError, Objects, PodEvent, Result, Token};

/// Reason of the event about a pod that wants the cluster's DNS (`agent/core/src/dns.rs`).
const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";

/// ConfigMaps, Secrets and Services of the directory; statuses go to memory.
#[derive(Debug)]
pub(super) struct DirectoryObjects {
    pub(super) shared: Arc<Shared>,
    pub(super) events: EventSink,
}

impl DirectoryObjects {
    fn find<K: Clone>(
        &self,
        kind: &'static str,
        select: fn(&state::Snapshot) -> &state::Objects<K>,
        namespace: &str,
        name: &str,
    ) -> Result<K> {
        let snapshot = self.shared.snapshot();
        let found = select(&snapshot).get(&format!("{namespace}/{name}"));
        found
            .map(|object| K::clone(object))
            .ok_or_else(|| ObjectError::NotFound {
                kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
    }
}

impl Objects for DirectoryObjects {
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<ConfigMap>> {
        future::ready(self.find("ConfigMap", |s| &s.config_maps, namespace, name)).boxed()
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Secret>> {
        future::ready(self.find("Secret", |s| &s.secrets, namespace, name)).boxed()
    }

    fn token<'a>(
        &'a self,
        pod: &'a Pod,
        _audience: Option<&'a str>,
        _expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<Token>> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        future::ready(Err(ObjectError::Unsupported {
            what: format!("a service account token for pod {name}"),
            source_name: "a directory of manifests",
        }))
        .boxed()
    }

    fn services(&self, namespace: &str) -> Vec<Service> {
        let snapshot = self.shared.snapshot();
        let services = snapshot.services.values();
        let visible = services.filter(|service| is_for_environment(service, namespace));
        visible.map(|service| Service::clone(service)).collect()
    }

    fn node(&self) -> Option<Node> {
        self.shared
            .snapshot()
            .nodes
            .values()
            .next()
            .map(|node| Node::clone(node))
    }

    fn write_status<'a>(&'a self, pod: &'a Pod, status: PodStatus) -> BoxFuture<'a, Result<()>> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut found = false;
        self.shared
            .change(|state| found = state.set_status(uid, status));
        future::ready(found.then_some(()).ok_or_else(|| ObjectError::NotFound {
            kind: "Pod",
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        }))
        .boxed()
    }

    fn finish_deletion<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<()>> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.shared.change(|state| state.finish_deletion(uid));
        future::ready(Ok(())).boxed()
    }

    fn event(&self, event: PodEvent) {
        // Nobody has promised a cluster's DNS here.
        if event.reason == MISSING_CLUSTER_DNS {
            return;
        }
        self.shared.warnings().note(&event);
        self.events.pod(event);
    }
}
