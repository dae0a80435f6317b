//! The calls.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};

use crate::CriError;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::v1::{
    Container, ContainerConfig, ContainerEventResponse, ContainerFilter, ContainerStatus,
    ContainerStatusRequest, CreateContainerRequest, ExecRequest, ExecSyncRequest, ExecSyncResponse,
    GetEventsRequest, Image, ImageSpec, ImageStatusRequest, ListContainersRequest,
    ListImagesRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxFilter,
    PodSandboxStatus, PodSandboxStatusRequest, PullImageRequest, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, RuntimeCondition, RuntimeConfigRequest,
    StartContainerRequest, StatusRequest, StopContainerRequest, StopPodSandboxRequest,
    VersionRequest, VersionResponse,
};

/// For calls that only read the runtime's memory.
const QUERY: Duration = Duration::from_secs(15);
/// For calls that start or stop processes or call CNI. kubelet allows 2 minutes
/// for ordinary calls and 4 for RunPodSandbox.
const CHANGE: Duration = Duration::from_mins(2);
const RUN_SANDBOX: Duration = Duration::from_mins(4);
/// A pull without an answer for this long is given up; kubelet's limit is
/// progress-based and lives in the runtime (`image_pull_progress_timeout`).
const PULL: Duration = Duration::from_hours(1);
/// Added to timeouts that the runtime itself enforces.
const SLACK: Duration = Duration::from_secs(15);
/// A node with 110 pods of several containers lists well below this; tonic's own
/// default of 4 MiB is not far above it.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Which streams an interactive command gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecStreams {
    /// Terminal; standard error then arrives on standard output.
    pub tty: bool,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

/// Changes of containers as the runtime reports them.
#[derive(Debug)]
pub struct EventStream {
    socket: PathBuf,
    events: Streaming<ContainerEventResponse>,
}

impl EventStream {
    /// The next change; `None` when the runtime ends the stream.
    pub async fn next(&mut self) -> Result<Option<ContainerEventResponse>, CriError> {
        self.events
            .message()
            .await
            .map_err(|status| watch_error(&self.socket, status))
    }
}

fn watch_error(socket: &Path, status: Status) -> CriError {
    CriError::Call {
        operation: "watch",
        object: "container events".into(),
        socket: socket.to_owned(),
        source: Box::new(status),
    }
}

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
                source: Box::new(status),
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

    /// Creates and starts a sandbox with its network; the id of it. `object` is
    /// the pod, for error messages.
    pub async fn run_pod_sandbox(
        &self,
        object: &str,
        config: PodSandboxConfig,
    ) -> Result<String, CriError> {
        let request = RunPodSandboxRequest {
            config: Some(config),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.run_pod_sandbox(request);
        let response = self
            .call("create sandbox of pod", object, RUN_SANDBOX, call)
            .await?;
        Ok(response.pod_sandbox_id)
    }

    /// Stops the processes of a sandbox and takes down its network; idempotent.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.stop_pod_sandbox(request);
        self.call("stop sandbox", id, CHANGE, call).await.map(drop)
    }

    /// Removes a sandbox with its containers; idempotent.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.remove_pod_sandbox(request);
        self.call("remove sandbox", id, CHANGE, call)
            .await
            .map(drop)
    }

    /// One sandbox, with its addresses.
    pub async fn pod_sandbox_status(&self, id: &str) -> Result<PodSandboxStatus, CriError> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.pod_sandbox_status(request);
        let operation = "ask status of sandbox";
        let response = self.call(operation, id, QUERY, call).await?;
        response.status.ok_or_else(|| CriError::Incomplete {
            operation,
            object: id.to_owned(),
            field: "status",
        })
    }

    /// The sandboxes that carry all of these labels; all for none.
    pub async fn list_pod_sandboxes(
        &self,
        labels: &[(&str, &str)],
    ) -> Result<Vec<PodSandbox>, CriError> {
        let filter = PodSandboxFilter {
            id: String::new(),
            label_selector: owned(labels),
        };
        let request = ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.list_pod_sandbox(request);
        Ok(self.call("list", "sandboxes", QUERY, call).await?.items)
    }

    /// Creates a container in a sandbox; its id. `object` is
    /// `namespace/pod/container`, for error messages.
    pub async fn create_container(
        &self,
        object: &str,
        sandbox_id: &str,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String, CriError> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.create_container(request);
        Ok(self
            .call("create container", object, CHANGE, call)
            .await?
            .container_id)
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = StartContainerRequest {
            container_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.start_container(request);
        self.call("start container", id, CHANGE, call)
            .await
            .map(drop)
    }

    /// Sends the stop signal, waits up to `grace`, then kills; idempotent.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let request = StopContainerRequest {
            container_id: id.to_owned(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        };
        let limit = grace.saturating_add(CHANGE);
        let mut runtime = self.runtime.clone();
        let call = runtime.stop_container(request);
        self.call("stop container", id, limit, call).await.map(drop)
    }

    /// Removes a container, killing it where it still runs; idempotent.
    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.remove_container(request);
        self.call("remove container", id, CHANGE, call)
            .await
            .map(drop)
    }

    /// The containers that carry all of these labels; all for none.
    pub async fn list_containers(
        &self,
        labels: &[(&str, &str)],
    ) -> Result<Vec<Container>, CriError> {
        let filter = ContainerFilter {
            id: String::new(),
            label_selector: owned(labels),
        };
        let request = ListContainersRequest {
            filter: Some(filter),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.list_containers(request);
        Ok(self
            .call("list", "containers", QUERY, call)
            .await?
            .containers)
    }

    /// One container.
    pub async fn container_status(&self, id: &str) -> Result<ContainerStatus, CriError> {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.container_status(request);
        let operation = "ask status of container";
        let response = self.call(operation, id, QUERY, call).await?;
        response.status.ok_or_else(|| CriError::Incomplete {
            operation,
            object: id.to_owned(),
            field: "status",
        })
    }

    /// Runs a command in a container and waits for it, at most `timeout`.
    pub async fn exec_sync(
        &self,
        id: &str,
        cmd: Vec<String>,
        timeout: Duration,
    ) -> Result<ExecSyncResponse, CriError> {
        let seconds = i64::try_from(timeout.as_secs().max(1)).unwrap_or(i64::MAX);
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd,
            timeout: seconds,
        };
        let limit = timeout.saturating_add(SLACK);
        let mut runtime = self.runtime.clone();
        let call = runtime.exec_sync(request);
        self.call("run command in container", id, limit, call).await
    }

    /// Prepares a command with streams; the URL that serves them.
    pub async fn exec(
        &self,
        id: &str,
        cmd: Vec<String>,
        streams: ExecStreams,
    ) -> Result<String, CriError> {
        let request = ExecRequest {
            container_id: id.to_owned(),
            cmd,
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.exec(request);
        Ok(self
            .call("prepare command in container", id, QUERY, call)
            .await?
            .url)
    }

    /// Changes as they happen. containerd 1.6 does not have this
    /// (`is_unimplemented`). The answer's headers may come with the first event
    /// only, so that opening has no deadline: race it against something.
    pub async fn container_events(&self) -> Result<EventStream, CriError> {
        let mut runtime = self.runtime.clone();
        let response = runtime.get_container_events(GetEventsRequest {}).await;
        let response = response.map_err(|status| watch_error(&self.socket, status))?;
        Ok(EventStream {
            socket: self.socket.clone(),
            events: response.into_inner(),
        })
    }

    /// The image, if it is on the node.
    pub async fn image_status(&self, image: &str) -> Result<Option<Image>, CriError> {
        let request = ImageStatusRequest {
            image: Some(spec(image)),
        };
        let mut images = self.images.clone();
        let call = images.image_status(request);
        Ok(self
            .call("ask status of image", image, QUERY, call)
            .await?
            .image)
    }

    /// Pulls an image; the reference that containers are to be created with.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<crate::v1::AuthConfig>,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String, CriError> {
        let request = PullImageRequest {
            image: Some(spec(image)),
            auth,
            sandbox_config: Some(sandbox_config),
        };
        let mut images = self.images.clone();
        let call = images.pull_image(request);
        Ok(self.call("pull image", image, PULL, call).await?.image_ref)
    }

    /// All images on the node.
    pub async fn list_images(&self) -> Result<Vec<Image>, CriError> {
        let mut images = self.images.clone();
        let call = images.list_images(ListImagesRequest { filter: None });
        Ok(self.call("list", "images", QUERY, call).await?.images)
    }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        user_specified_image: String::new(),
    }
}

fn owned(labels: &[(&str, &str)]) -> std::collections::HashMap<String, String> {
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
        assert!(error.is_unreachable(), "{error:?}");
    }
}
