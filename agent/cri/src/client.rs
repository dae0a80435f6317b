//! The calls.

mod commands;
mod containers;
mod events;
mod images;
mod sandboxes;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::CriError;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::v1::{
    RuntimeCondition, RuntimeConfigRequest, StatusRequest, VersionRequest, VersionResponse,
};
pub use commands::ExecStreams;
pub use events::EventStream;

/// For calls that only read the runtime's memory.
const QUERY: Duration = Duration::from_secs(15);
/// For calls that start or stop processes; kubelet's limit.
const CHANGE: Duration = Duration::from_mins(2);
/// A node with 110 pods of several containers lists well below this; tonic's own
/// default of 4 MiB is not far above it.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A connection to one runtime; cheap to clone, reconnects by itself.
#[derive(Clone, Debug)]
pub struct CriClient {
    socket: PathBuf,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl CriClient {
    /// Prepares a connection to `endpoint` (`unix:///run/containerd/containerd.sock`,
    /// or a plain absolute path). Connects on first use, so a runtime that is not
    /// there yet is an error of the calls, not of this.
    pub fn new(endpoint: &str) -> Result<Self, CriError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(CriError::Endpoint {
                endpoint: endpoint.to_owned(),
            });
        }
        let socket = PathBuf::from(path);
        let target = socket.clone();
        // The address is never resolved: the connector below ignores it.
        let channel = Endpoint::from_static("http://runtime.invalid").connect_with_connector_lazy(
            tower::service_fn(move |_| {
                let target = target.clone();
                async move { UnixStream::connect(target).await.map(TokioIo::new) }
            }),
        );
        Ok(Self {
            socket,
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES),
        })
    }

    /// The runtime's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        object: &str,
        limit: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CriError> {
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(CriError::Call {
                operation,
                object: object.to_owned(),
                socket: self.socket.clone(),
                source: status.into(),
            }),
            Err(_elapsed) => Err(CriError::Timeout {
                operation,
                object: object.to_owned(),
                limit,
            }),
        }
    }

    /// Name and version of the runtime.
    pub async fn version(&self) -> Result<VersionResponse, CriError> {
        let request = VersionRequest {
            version: "0.1.0".into(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.version(request);
        self.call("ask version of", "the runtime", QUERY, call)
            .await
    }

    /// The runtime's conditions: `RuntimeReady`, `NetworkReady`.
    pub async fn status(&self) -> Result<Vec<RuntimeCondition>, CriError> {
        let request = StatusRequest { verbose: false };
        let mut runtime = self.runtime.clone();
        let call = runtime.status(request);
        let response = self
            .call("ask status of", "the runtime", QUERY, call)
            .await?;
        Ok(response.status.map(|s| s.conditions).unwrap_or_default())
    }

    /// Whether the runtime hands cgroups to systemd. Runtimes before 1.28's API
    /// cannot say (`is_unimplemented`).
    pub async fn uses_systemd_cgroups(&self) -> Result<bool, CriError> {
        let mut runtime = self.runtime.clone();
        let call = runtime.runtime_config(RuntimeConfigRequest {});
        let response = self
            .call("ask configuration of", "the runtime", QUERY, call)
            .await?;
        Ok(response
            .linux
            .is_some_and(|linux| linux.cgroup_driver() == crate::v1::CgroupDriver::Systemd))
    }
}

fn labelled(labels: &[(&str, &str)]) -> HashMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoint_must_be_a_socket() {
        let error = CriClient::new("tcp://127.0.0.1:1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "runtime endpoint \"tcp://127.0.0.1:1\" is not unix:///path"
        );
    }

    #[tokio::test]
    async fn missing_socket_names_operation_object_and_path() {
        let client = CriClient::new("unix:///nowhere/containerd.sock").unwrap();
        let error = client.stop_pod_sandbox("abc").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "stop sandbox abc through /nowhere/containerd.sock"
        );
        let source = std::error::Error::source(&error).unwrap();
        assert_eq!(
            source.to_string(),
            "Unavailable: No such file or directory (os error 2)"
        );
        assert!(source.source().is_none(), "the text above has it all");
        assert!(error.is_unreachable(), "{error:?}");
    }
}
