//! Objects from and to an API server, with a node's permissions.
//!
//! ConfigMaps and Secrets are read by name whenever they are asked for: the Node
//! authorizer allows no lists of them, and a copy that is seconds old would give a new
//! pod old data. Services, this Node and this node's pods are watched.

pub mod error;
mod outage;
mod status;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, Pod, PodStatus, Secret, Service, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::events::EventSink;
use crate::objects::{ObjectError, Objects, PodEvent, Result, Token};
use error::{is_conflict, is_not_found, within};
use watched::NodeKnown;

/// A request that takes longer has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The events of a watch.
pub type Watch<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// The API server as the pod workers see it.
#[derive(Clone)]
pub struct ApiObjects {
    client: Client,
    node: Store<Node>,
    node_known: NodeKnown,
    services: Store<Service>,
    events: EventSink,
}

impl std::fmt::Debug for ApiObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiObjects").finish_non_exhaustive()
    }
}

/// Keeps a store filled; runs until the process ends.
pub type Reflector = BoxFuture<'static, ()>;

impl ApiObjects {
    /// The objects, and what keeps them current: poll both futures.
    pub fn new(client: Client, node_name: &str, events: EventSink) -> (Self, [Reflector; 2]) {
        let this_node = watcher::Config::default().fields(&format!("metadata.name={node_name}"));
        let nodes = watched::watch(Api::all(client.clone()), this_node);
        let (node, node_known, node_task) = watched::own_node(nodes);
        let all = watcher::Config::default();
        let services = watched::logged(seaway_proxy::services(&client, all));
        let (services, services_task) = watched::store(services);
        (
            Self {
                client,
                node,
                node_known,
                services,
                events,
            },
            [node_task, services_task],
        )
    }

    /// This node's Node object, watched.
    pub fn node_store(&self) -> Store<Node> {
        self.node.clone()
    }

    /// All Services, watched.
    pub fn service_store(&self) -> Store<Service> {
        self.services.clone()
    }

    /// The pods of `node_name`. It begins when the Node with its resources and the
    /// Services are known: admission needs the one, environments the other.
    pub fn pods(&self, node_name: &str) -> Watch<Pod> {
        let this_node = watcher::Config::default().fields(&format!("spec.nodeName={node_name}"));
        let api: Api<Pod> = Api::all(self.client.clone());
        let (node, services) = (self.node_known.clone(), self.services.clone());
        let known = async move {
            node.wait().await;
            // A dropped writer means shutdown; the stream is then not polled any more.
            drop(services.wait_until_ready().await);
        };
        stream::once(known)
            .flat_map(move |()| watched::watch(api.clone(), this_node.clone()))
            .boxed()
    }

    fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn get<K>(&self, kind: &'static str, namespace: &str, name: &str) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        within(REQUEST_TIMEOUT, self.namespaced::<K>(namespace).get(name))
            .await
            .map_err(|error| object_error("get", kind, namespace, name, error))
    }

    async fn request_token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        expiration_seconds: i64,
    ) -> Result<Token> {
        let namespace = pod.namespace().unwrap_or_default();
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.as_deref())
            .filter(|name| !name.is_empty())
            .unwrap_or("default");
        let body = token_request(pod, audience, expiration_seconds);
        let api: Api<ServiceAccount> = self.namespaced(&namespace);
        let params = PostParams::default();
        let request = api.create_subresource("token", account, &params, &body);
        let answer: TokenRequest = within(REQUEST_TIMEOUT, request).await.map_err(|error| {
            object_error(
                "request token of",
                "ServiceAccount",
                &namespace,
                account,
                error,
            )
        })?;
        let status = answer.status.unwrap_or_default();
        match (status.token, status.expiration_timestamp) {
            (Some(token), Some(Time(expires))) => Ok(Token { token, expires }),
            _ => Err(ObjectError::Request {
                operation: "request token of",
                object: format!("ServiceAccount {namespace}/{account}"),
                source: "the answer holds none".into(),
            }),
        }
    }
}

impl Objects for ApiObjects {
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<ConfigMap>> {
        self.get("ConfigMap", namespace, name).boxed()
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Secret>> {
        self.get("Secret", namespace, name).boxed()
    }

    fn token<'a>(
        &'a self,
        pod: &'a Pod,
        audience: Option<&'a str>,
        expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<Token>> {
        self.request_token(pod, audience, expiration_seconds)
            .boxed()
    }

    fn services(&self, namespace: &str) -> Vec<Service> {
        self.services
            .state_filter(|service| is_for_environment(service, namespace))
            .into_iter()
            .map(Arc::unwrap_or_clone)
            .collect()
    }

    fn node(&self) -> Option<Node> {
        self.node
            .state()
            .into_iter()
            .next()
            .map(Arc::unwrap_or_clone)
    }

    fn write_status<'a>(&'a self, pod: &'a Pod, status: PodStatus) -> BoxFuture<'a, Result<()>> {
        async move {
            let Some(patch) = status::patch(pod, &status) else {
                return Ok(());
            };
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let (api, params) = (self.namespaced::<Pod>(&namespace), PatchParams::default());
            let patch = Patch::Strategic(patch);
            within(REQUEST_TIMEOUT, api.patch_status(&name, &params, &patch))
                .await
                .map(drop)
                .map_err(|error| object_error("patch status of", "Pod", &namespace, &name, error))
        }
        .boxed()
    }

    fn finish_deletion<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<()>> {
        async move {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions {
                    uid: pod.metadata.uid.clone(),
                    ..Preconditions::default()
                }),
                ..DeleteParams::default()
            };
            let api = self.namespaced::<Pod>(&namespace);
            match within(REQUEST_TIMEOUT, api.delete(&name, &params)).await {
                // Gone already, or gone and another of its name has come.
                Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
                Err(error) => Err(object_error("delete", "Pod", &namespace, &name, error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }

    fn event(&self, event: PodEvent) {
        self.events.pod(event);
    }
}

fn token_request(pod: &Pod, audience: Option<&str>, expiration_seconds: i64) -> TokenRequest {
    TokenRequest {
        spec: Some(TokenRequestSpec {
            // No audience means the API server's own.
            audiences: Some(audience.map(str::to_owned).into_iter().collect()),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            expiration_seconds: Some(expiration_seconds),
        }),
        ..TokenRequest::default()
    }
}

/// Whether a Service becomes environment variables of pods in `namespace`.
pub(crate) fn is_for_environment(service: &Service, namespace: &str) -> bool {
    let cluster_ip = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref());
    if matches!(cluster_ip, None | Some("" | "None")) {
        return false;
    }
    let own = service.metadata.namespace.as_deref();
    own == Some(namespace)
        || (own == Some("default") && service.metadata.name.as_deref() == Some("kubernetes"))
}

fn object_error(
    operation: &'static str,
    kind: &'static str,
    namespace: &str,
    name: &str,
    error: kube::Error,
) -> ObjectError {
    // A conflict is a UID precondition that does not hold: another object by now.
    if is_not_found(&error) || is_conflict(&error) {
        return ObjectError::NotFound {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
    }
    let object = format!("{kind} {namespace}/{name}");
    ObjectError::Request {
        operation,
        object,
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests;
