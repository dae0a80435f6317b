//! Containers, from creation to removal.

use super::CriClient;
use super::{CHANGE, QUERY, labelled};
use crate::CriError;
use crate::v1::{
    Container, ContainerConfig, ContainerFilter, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, ListContainersRequest, PodSandboxConfig, RemoveContainerRequest,
    StartContainerRequest, StopContainerRequest,
};
use std::time::Duration;

impl CriClient {
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
            label_selector: labelled(labels),
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
}
