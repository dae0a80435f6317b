//! Does what a plan says, one action at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use seaway_agent_core::container::MountedVolume;
use seaway_agent_core::observed::Observed;
use seaway_agent_core::qos::CgroupDriver;
use seaway_agent_core::sandbox::{self, SandboxConfig};
use seaway_agent_core::state::StartFailure;
use seaway_agent_core::step::{Action, StopReason};
use seaway_agent_core::{dns, qos, spec};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::start::{Start, start};
use super::{Shared, cgroups, chain, convert};
use crate::objects::{EventType, ObjectError};

/// How long the last writes about a pod are tried again, at most this far apart.
const FINISH_RETRY: Duration = Duration::from_secs(5);

/// How an action ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    /// Volumes are in place.
    Volumes(BTreeMap<String, MountedVolume>),
    StartFailed(StartFailure),
    Failed,
    /// Given up because the pod ends.
    Cancelled,
}

/// What an action works with: a snapshot of its pod.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// With its current status.
    pub(super) pod: Pod,
    pub(super) observed: Observed,
    pub(super) volumes: BTreeMap<String, MountedVolume>,
    pub(super) cancel: CancellationToken,
    /// The source still has the object and waits for its end.
    pub(super) has_object: bool,
    /// The source shows this status already.
    pub(super) is_published: bool,
}

impl Context {
    /// Does `action`.
    pub(super) async fn run(self, action: &Action) -> Outcome {
        let cri = &self.shared.cri;
        let result = match action {
            Action::PrepareVolumes => return self.prepare_volumes().await,
            Action::CreateSandbox { attempt } => return self.create_sandbox(*attempt).await,
            Action::StartContainer {
                name,
                attempt,
                sandbox_id,
                ..
            } => {
                let start = start(
                    &self,
                    Start {
                        name,
                        attempt: *attempt,
                        sandbox_id,
                    },
                );
                return Box::pin(start).await;
            }
            Action::Teardown => return self.teardown().await,
            Action::RemoveLogs => return self.remove_logs().await,
            Action::Finish => return self.finish().await,
            Action::StopContainer {
                id,
                name,
                grace,
                reason,
            } => {
                self.killing(name, *reason);
                cri.stop_container(id, *grace).await
            }
            Action::StopSandbox { id } => cri.stop_pod_sandbox(id).await,
            Action::RemoveSandbox { id } => cri.remove_pod_sandbox(id).await,
            Action::RemoveContainer { id } => cri.remove_container(id).await,
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_not_found() => Outcome::Done,
            Err(error) => {
                warn!(pod = %spec::key(&self.pod), error = %chain(&error), "Runtime refused");
                if matches!(
                    action,
                    Action::StopContainer { .. } | Action::StopSandbox { .. }
                ) {
                    let message = format!("error killing pod: {}", error.message());
                    self.shared
                        .event(&self.pod, EventType::Warning, "FailedKillPod", message);
                }
                Outcome::Failed
            }
        }
    }

    /// The sandbox's configuration, and a warning for the pod's owner.
    pub(super) async fn sandbox_config(
        &self,
        attempt: u32,
    ) -> Result<(SandboxConfig, Option<(&'static str, String)>), String> {
        let config = &self.shared.config;
        let path = &config.resolv_conf;
        let host = match std::fs::read_to_string(path) {
            Ok(text) => dns::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => dns::DnsConfig::default(),
            Err(error) => return Err(format!("read {}: {error}", path.display())),
        };
        let (dns, warning) = dns::config(
            &self.pod,
            &host,
            &config.cluster_dns,
            &config.cluster_domain,
        );
        let driver = self.shared.cgroup_driver().await;
        let logs = config.pod_log_dir.to_string_lossy();
        let sandbox = sandbox::config(&self.pod, attempt, dns, &logs, &config.cgroup_root, driver);
        Ok((sandbox, warning))
    }

    fn killing(&self, container: &str, reason: StopReason) {
        let message = match reason {
            StopReason::PodEnds => format!("Stopping container {container}"),
            StopReason::ProbeFailed(probe) => {
                format!("Container {container} failed {probe} probe, will be restarted")
            }
            StopReason::Changed => {
                format!("Container {container} definition changed, will be restarted")
            }
        };
        self.shared
            .container_event(&self.pod, container, EventType::Normal, "Killing", message);
    }

    async fn prepare_volumes(&self) -> Outcome {
        let prepared = tokio::select! {
            () = self.cancel.cancelled() => return Outcome::Cancelled,
            prepared = self.shared.volumes.prepare(&self.pod) => prepared,
        };
        match prepared {
            Ok(prepared) => {
                let volumes = prepared.by_name.into_iter().map(|(name, volume)| {
                    (
                        name,
                        MountedVolume {
                            path: volume.path,
                            read_only: volume.read_only,
                        },
                    )
                });
                Outcome::Volumes(volumes.collect())
            }
            Err(error) => {
                let message = chain(&error);
                self.shared
                    .event(&self.pod, EventType::Warning, "FailedMount", message);
                Outcome::Failed
            }
        }
    }

    async fn create_sandbox(&self, attempt: u32) -> Outcome {
        let (shared, pod) = (&self.shared, &self.pod);
        let created = match self.sandbox_config(attempt).await {
            Ok((config, warning)) => {
                if let Some((reason, message)) = warning {
                    shared.event(pod, EventType::Warning, reason, message);
                }
                if attempt > 0 {
                    let message =
                        "Pod sandbox changed, it will be killed and re-created.".to_owned();
                    shared.event(pod, EventType::Normal, "SandboxChanged", message);
                }
                // The runtime does not make it before the first container, and its start
                // fails where this does.
                drop(shared.log_dirs.create(pod));
                let config = convert::sandbox(&config);
                shared
                    .cri
                    .run_pod_sandbox(&spec::key(pod), config)
                    .await
                    .map_err(|e| e.message())
            }
            Err(message) => Err(message),
        };
        match created {
            Ok(_id) => Outcome::Done,
            Err(message) => {
                let message = format!("Failed to create pod sandbox: {message}");
                shared.event(pod, EventType::Warning, "FailedCreatePodSandBox", message);
                Outcome::Failed
            }
        }
    }

    /// Takes down volumes, files and cgroups.
    async fn teardown(&self) -> Outcome {
        let shared = &self.shared;
        if let Err(error) = shared.volumes.teardown(spec::uid(&self.pod)).await {
            warn!(pod = %spec::key(&self.pod), error = %chain(&error), "Volumes stay");
            return Outcome::Failed;
        }
        let driver = shared.cgroup_driver().await;
        let parents = match driver {
            // The class of a pod that is only known from the runtime is lost.
            CgroupDriver::Cgroupfs => cgroup_candidates(&shared.config.cgroup_root, &self.pod),
            // systemd removes its own slices when they are empty.
            CgroupDriver::Systemd => Vec::new(),
        };
        let removed = self.blocking(move || {
            for parent in &parents {
                cgroups::remove(parent);
            }
            Ok(())
        });
        removed.await
    }

    async fn remove_logs(&self) -> Outcome {
        let (logs, pod) = (self.shared.log_dirs.clone(), self.pod.clone());
        self.blocking(move || logs.remove(&pod)).await
    }

    async fn blocking(
        &self,
        work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) -> Outcome {
        let done = tokio::task::spawn_blocking(work).await;
        match done.map_err(std::io::Error::other).flatten() {
            Ok(()) => Outcome::Done,
            Err(error) => {
                warn!(pod = %spec::key(&self.pod), %error, "Something of the pod stays");
                Outcome::Failed
            }
        }
    }

    /// The last status, then the end of the object. Tried until it is done: the
    /// source may be away for long.
    async fn finish(&self) -> Outcome {
        if !self.has_object {
            return Outcome::Done;
        }
        let objects = &self.shared.objects;
        let status: PodStatus = self.pod.status.clone().unwrap_or_default();
        let mut delay = Duration::from_millis(100);
        loop {
            let written = if self.is_published {
                Ok(())
            } else {
                objects.write_status(&self.pod, status.clone()).await
            };
            let done = match written {
                Ok(()) => objects.finish_deletion(&self.pod).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) | Err(ObjectError::NotFound { .. } | ObjectError::Unsupported { .. }) => {
                    return Outcome::Done;
                }
                Err(error) => {
                    warn!(pod = %spec::key(&self.pod), error = %chain(&error), "Source does not take the end of a pod");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(FINISH_RETRY);
        }
    }
}

fn cgroup_candidates(root: &str, pod: &Pod) -> Vec<String> {
    if spec::containers(pod).is_empty() {
        let root = root.trim_end_matches('/');
        let uid = spec::uid(pod);
        return ["", "/burstable", "/besteffort"]
            .map(|level| format!("{root}/kubepods{level}/pod{uid}"))
            .to_vec();
    }
    vec![qos::cgroup_parent(root, CgroupDriver::Cgroupfs, pod)]
}

impl Shared {
    /// How the runtime names cgroups; a runtime that cannot say uses paths.
    pub(super) async fn cgroup_driver(&self) -> CgroupDriver {
        let ask = || async {
            match self.cri.uses_systemd_cgroups().await {
                Ok(true) => Ok(CgroupDriver::Systemd),
                Ok(false) => Ok(CgroupDriver::Cgroupfs),
                Err(error) if error.is_unimplemented() => Ok(CgroupDriver::Cgroupfs),
                Err(error) => Err(error),
            }
        };
        self.cgroup_driver
            .get_or_try_init(ask)
            .await
            .copied()
            .unwrap_or_default()
    }
}
