//! Looks at one pod in the runtime.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use seaway_agent_core::observed::{Instance, Observed, RunState, Sandbox};
use seaway_agent_core::sandbox::labels;
use seaway_agent_cri::{CriClient, CriError, v1};

use super::files;

/// Remembers what cannot change, so that a look usually costs two calls.
#[derive(Debug)]
pub(super) struct Observer {
    cri: CriClient,
    uid: String,
    termination_dir: std::path::PathBuf,
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Instance>,
}

impl Observer {
    pub(super) fn new(cri: CriClient, uid: &str, pods_dir: &Path) -> Self {
        Self {
            cri,
            uid: uid.to_owned(),
            termination_dir: pods_dir.join(uid),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
        }
    }

    pub(super) async fn observe(&mut self) -> Result<Observed, CriError> {
        let selector = [(labels::POD_UID, self.uid.as_str())];
        let (sandboxes, containers) = tokio::join!(
            self.cri.list_pod_sandboxes(&selector),
            self.cri.list_containers(&selector),
        );
        self.update_sandboxes(&sandboxes?).await?;
        self.update_containers(&containers?).await?;
        Ok(Observed {
            sandboxes: self.sandboxes.values().cloned().collect(),
            containers: self.containers.values().cloned().collect(),
        })
    }

    async fn update_sandboxes(&mut self, list: &[v1::PodSandbox]) -> Result<(), CriError> {
        self.sandboxes
            .retain(|id, _| list.iter().any(|item| item.id == *id));
        for item in list {
            let ready = item.state() == v1::PodSandboxState::SandboxReady;
            let known = self.sandboxes.get(&item.id);
            if known.is_some_and(|known| known.ready == ready && (!ready || !known.ips.is_empty()))
            {
                continue;
            }
            match self.cri.pod_sandbox_status(&item.id).await {
                Ok(status) => {
                    self.sandboxes.insert(item.id.clone(), sandbox(status));
                }
                Err(error) if error.is_not_found() => {
                    self.sandboxes.remove(&item.id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn update_containers(&mut self, list: &[v1::Container]) -> Result<(), CriError> {
        self.containers
            .retain(|id, _| list.iter().any(|item| item.id == *id));
        for item in list {
            let state = run_state(item.state());
            if self
                .containers
                .get(&item.id)
                .is_some_and(|known| known.state == state)
            {
                continue;
            }
            match self.cri.container_status(&item.id).await {
                Ok(status) => {
                    let sandbox_id = item.pod_sandbox_id.clone();
                    let instance = self.instance(status, sandbox_id);
                    self.containers.insert(item.id.clone(), instance);
                }
                Err(error) if error.is_not_found() => {
                    self.containers.remove(&item.id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn instance(&self, status: v1::ContainerStatus, sandbox_id: String) -> Instance {
        let state = run_state(status.state());
        let metadata = status.metadata.unwrap_or_default();
        let mut message = status.message;
        if state == RunState::Exited {
            let file =
                files::termination_file(&self.termination_dir, &metadata.name, metadata.attempt);
            let policy = status
                .annotations
                .get(labels::TERMINATION_POLICY)
                .map(String::as_str);
            let log = (policy == Some("FallbackToLogsOnError") && status.exit_code != 0)
                .then_some(Path::new(&status.log_path));
            if let Some(text) = files::last_words(&file, log) {
                message = text;
            }
        }
        Instance {
            id: status.id,
            sandbox_id,
            name: metadata.name,
            attempt: metadata.attempt,
            state,
            created_at: time(status.created_at).unwrap_or_default(),
            started_at: time(status.started_at),
            finished_at: time(status.finished_at),
            exit_code: status.exit_code,
            reason: status.reason,
            message,
            image: status.image.map(|image| image.image).unwrap_or_default(),
            image_ref: status.image_ref,
            hash: status
                .annotations
                .get(labels::CONTAINER_HASH)
                .cloned()
                .unwrap_or_default(),
            log_path: status.log_path,
        }
    }
}

fn sandbox(status: v1::PodSandboxStatus) -> Sandbox {
    let ready = status.state() == v1::PodSandboxState::SandboxReady;
    let network = status.network.unwrap_or_default();
    let first = (!network.ip.is_empty()).then_some(network.ip);
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    Sandbox {
        id: status.id,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        ready,
        created_at: time(status.created_at).unwrap_or_default(),
        ips: first.into_iter().chain(more).collect(),
    }
}

fn run_state(state: v1::ContainerState) -> RunState {
    match state {
        v1::ContainerState::ContainerCreated => RunState::Created,
        v1::ContainerState::ContainerRunning => RunState::Running,
        v1::ContainerState::ContainerExited => RunState::Exited,
        v1::ContainerState::ContainerUnknown => RunState::Unknown,
    }
}

/// The runtime counts nanoseconds; 0 is "not yet".
fn time(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(i128::from(nanoseconds)).ok())?
}
