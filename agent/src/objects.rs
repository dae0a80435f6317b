//! What the agent reads from and writes to the place where objects live:
//! the API server, or a directory of manifests in standalone mode.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodStatus, Secret, Service};

/// Result of an object operation.
pub type Result<T> = std::result::Result<T, ObjectError>;

/// An object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object does not exist (or, for a write, exists with another UID).
    #[error("{kind} {namespace}/{name} not found")]
    NotFound {
        /// Kind, as in the API: `ConfigMap`.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// This source has no such thing; asking again will not help.
    #[error("{what} is not available from {source_name}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// `standalone directory`, for example.
        source_name: &'static str,
    },
    /// The other side failed or could not be reached; worth a retry.
    #[error("{operation} {object}")]
    Request {
        /// The verb: `get`, `patch status of`.
        operation: &'static str,
        /// The object: `Secret default/token`.
        object: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A service-account token for one pod.
#[derive(Clone)]
pub struct Token {
    /// The bearer token.
    pub token: String,
    /// When it ends.
    pub expires: jiff::Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("token", &"…")
            .field("expires", &self.expires)
            .finish()
    }
}

/// `Normal` or `Warning`, as `kubectl describe` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Somebody should look.
    Warning,
}

/// An event about a pod, to be shown by `kubectl describe`.
#[derive(Clone, Debug)]
pub struct PodEvent {
    /// The pod it is about.
    pub pod: Pod,
    /// `spec.containers{name}` where it is about one container.
    pub field_path: Option<String>,
    /// Normal or Warning.
    pub event_type: EventType,
    /// A reason of kubelet's: `Pulled`, `BackOff`, `FailedMount`.
    pub reason: &'static str,
    /// One sentence for a person.
    pub message: String,
}

/// Where objects come from and where status goes. Implementations cache,
/// deduplicate and rate-limit as their other side needs it.
pub trait Objects: Send + Sync + 'static {
    /// One ConfigMap, current.
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<ConfigMap>>;

    /// One Secret, current.
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Secret>>;

    /// A token bound to `pod` for its service account, at least
    /// `expiration_seconds` long where the source agrees.
    fn token<'a>(
        &'a self,
        pod: &'a Pod,
        audience: Option<&'a str>,
        expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<Token>>;

    /// The Services of one namespace that have a ClusterIP, and `default/kubernetes`,
    /// for the environment variables of `enableServiceLinks`.
    fn services(&self, namespace: &str) -> Vec<Service>;

    /// This node's Node object, if it is known already.
    fn node(&self) -> Option<Node>;

    /// Publishes `status` for exactly this pod (same UID).
    fn write_status<'a>(&'a self, pod: &'a Pod, status: PodStatus) -> BoxFuture<'a, Result<()>>;

    /// Tells the source that a deleted pod has ended here and nothing of it is left,
    /// so that the object can go (delete with grace period 0 and UID precondition).
    fn finish_deletion<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<()>>;

    /// Records an event; never blocks, never fails the caller.
    fn event(&self, event: PodEvent);
}
