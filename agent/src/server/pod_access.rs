//! What the API needs from whoever runs the pods.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

/// Which streams of a process are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; never together with a terminal.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// The runtime does not serve a stream.
#[derive(Debug, thiserror::Error)]
#[error("prepare a command in container {container_id}")]
pub struct StreamError {
    /// The runtime's id of the container.
    pub container_id: String,
    /// Why not.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The pods of this node.
pub trait PodAccess: Send + Sync + 'static {
    /// All of them, with the status as this node knows it.
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// Prepares a new process in a running container; where the runtime serves its
    /// streams: an `http` URL.
    fn exec_url(
        &self,
        container_id: String,
        command: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'_, Result<String, StreamError>>;
}
