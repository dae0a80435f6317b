//! Sandboxes.

use super::CriClient;
use super::{CHANGE, QUERY, labelled};
use crate::CriError;
use crate::v1::{
    ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxStatus,
    PodSandboxStatusRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StopPodSandboxRequest,
};
use std::time::Duration;

/// Calls CNI, which may wait for others; kubelet allows 4 minutes too.
const RUN_SANDBOX: Duration = Duration::from_mins(4);

impl CriClient {
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
            label_selector: labelled(labels),
        };
        let request = ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.list_pod_sandbox(request);
        Ok(self.call("list", "sandboxes", QUERY, call).await?.items)
    }
}
