//! What the HTTPS API and the node status ask about pods.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use seaway_agent_core::observed::RunState;
use seaway_agent_core::spec;
use seaway_agent_cri::{CriError, ExecStreams};
use tokio::sync::watch;

use super::{Shared, View};
use crate::runtime_status::RuntimeStatus;

/// Access to the pods of this node; cheap to clone.
#[derive(Clone, Debug)]
pub struct PodsHandle {
    shared: Arc<Shared>,
}

/// One instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRef {
    /// The runtime's id.
    pub container_id: String,
    /// The runtime's id of its sandbox.
    pub sandbox_id: String,
    /// Its log.
    pub log_path: PathBuf,
    /// It has a process.
    pub running: bool,
    /// Why the container does not run now, where it is waiting:
    /// `CrashLoopBackOff`.
    pub waiting_reason: Option<String>,
}

/// There is no such container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No such pod on this node.
    #[error("pod {namespace}/{name} not found on this node")]
    NoPod {
        /// As asked for.
        namespace: String,
        /// As asked for.
        name: String,
    },
    /// The pod has no such container.
    #[error("container {container} is not valid for pod {pod}")]
    NoContainer {
        /// As asked for.
        container: String,
        /// The pod's name.
        pod: String,
    },
    /// The container was never started.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")]
    Waiting {
        /// As asked for.
        container: String,
        /// The pod's name.
        pod: String,
        /// The waiting reason: `ContainerCreating`.
        reason: String,
    },
    /// The container has no earlier instance.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious {
        /// As asked for.
        container: String,
        /// The pod's name.
        pod: String,
    },
}

impl PodsHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The runtime's status, always current.
    pub fn runtime_status(&self) -> watch::Receiver<RuntimeStatus> {
        self.shared.runtime.subscribe()
    }

    /// The pods of this node with their current status.
    pub fn list(&self) -> Vec<Pod> {
        let views = self.shared.read_views();
        // Pods known from the runtime only have no containers in their spec.
        let known = views
            .values()
            .filter(|view| !spec::containers(&view.pod).is_empty());
        known.map(|view| view.pod.clone()).collect()
    }

    /// The newest instance of a container, or with `previous` the one before it.
    pub fn container(
        &self,
        namespace: &str,
        pod: &str,
        uid: Option<&str>,
        container: &str,
        previous: bool,
    ) -> Result<ContainerRef, LookupError> {
        let view = self.view(namespace, pod, uid)?;
        let is_there = spec::container(&view.pod, container).is_some();
        // It is there for `kubectl debug`, which is to learn why it does not run.
        if !is_there && !spec::is_ephemeral(&view.pod, container) {
            let (container, pod) = (container.to_owned(), pod.to_owned());
            return Err(LookupError::NoContainer { container, pod });
        }
        let waiting_reason = waiting_reason(&view.pod, container);
        let latest = view.observed.latest_started(container);
        let instance = if previous {
            let ended = latest.and_then(|latest| view.observed.before(latest));
            ended.ok_or_else(|| LookupError::NoPrevious {
                container: container.to_owned(),
                pod: pod.to_owned(),
            })?
        } else {
            latest.ok_or_else(|| LookupError::Waiting {
                container: container.to_owned(),
                pod: pod.to_owned(),
                reason: waiting_reason
                    .clone()
                    .unwrap_or_else(|| "ContainerCreating".into()),
            })?
        };
        Ok(ContainerRef {
            container_id: instance.id.clone(),
            sandbox_id: instance.sandbox_id.clone(),
            log_path: PathBuf::from(&instance.log_path),
            running: instance.state == RunState::Running,
            waiting_reason,
        })
    }

    /// Prepares a command in a container; the runtime's URL that serves its streams.
    pub async fn exec_url(
        &self,
        container_id: &str,
        command: Vec<String>,
        streams: ExecStreams,
    ) -> Result<String, CriError> {
        self.shared.cri.exec(container_id, command, streams).await
    }

    /// Two pods of one name exist while the old one ends; the one that lives wins.
    fn view(&self, namespace: &str, name: &str, uid: Option<&str>) -> Result<View, LookupError> {
        let views = self.shared.read_views();
        let named = views.values().filter(|view| {
            spec::namespace(&view.pod) == namespace
                && spec::name(&view.pod) == name
                && uid.is_none_or(|uid| uid == spec::uid(&view.pod))
        });
        let best = named.min_by_key(|view| spec::is_deleted(&view.pod));
        best.cloned().ok_or_else(|| LookupError::NoPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

fn waiting_reason(pod: &Pod, container: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let found = lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|c| c.name == container)?;
    found.state.as_ref()?.waiting.as_ref()?.reason.clone()
}
