//! One container's part of the status.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus,
};

use super::{View, seconds};
use crate::observed::{Instance, RunState};
use crate::spec;
use crate::state::{StartFailure, crash_key};

/// How long a failed pull shows its error before it shows that it waits.
const ERROR_SHOWN: Duration = Duration::from_secs(2);

impl View<'_> {
    pub(super) fn container(&self, container: &Container, init: bool) -> ContainerStatus {
        let latest = self.latest(container);
        let state = self.container_state(container, latest, init);
        let started = latest.is_some_and(|c| self.is_started(container, c));
        let ended_well = latest.is_some_and(|c| c.state == RunState::Exited && c.exit_code == 0);
        let ready = latest.is_some_and(|c| self.is_ready(container, c));
        let waiting = state.waiting.is_some();
        let image = container.image.clone().unwrap_or_default();
        let published = self.published(&container.name);
        ContainerStatus {
            name: container.name.clone(),
            last_state: self.last_state(container, latest, waiting),
            ready: if init { ended_well } else { ready },
            started: Some(started),
            restart_count: self.restart_count(container, latest),
            image: latest
                .map(|c| c.image.clone())
                .filter(|i| !i.is_empty())
                .unwrap_or(image),
            image_id: latest.map(|c| c.image_ref.clone()).unwrap_or_default(),
            container_id: latest.map(|c| self.container_id(c)),
            state: Some(state),
            // Not computed here, so left as they are.
            allocated_resources: published.and_then(|p| p.allocated_resources.clone()),
            resources: published.and_then(|p| p.resources.clone()),
            ..ContainerStatus::default()
        }
    }

    fn container_id(&self, c: &Instance) -> String {
        format!("{}://{}", self.node.runtime_name, c.id)
    }

    /// Running, with a passed startup probe where there is one.
    fn is_started(&self, container: &Container, c: &Instance) -> bool {
        c.state == RunState::Running
            && (container.startup_probe.is_none()
                || self.state.probes.get(&c.id).and_then(|p| p.started) == Some(true))
    }

    fn is_ready(&self, container: &Container, c: &Instance) -> bool {
        self.is_started(container, c)
            && (container.readiness_probe.is_none()
                || self.state.probes.get(&c.id).and_then(|p| p.ready) == Some(true))
    }

    fn restart_count(&self, container: &Container, latest: Option<&Instance>) -> i32 {
        let published = self
            .published(&container.name)
            .map_or(0, |p| p.restart_count);
        latest.map_or(published, |c| i32::try_from(c.attempt).unwrap_or(i32::MAX))
    }

    fn container_state(
        &self,
        container: &Container,
        latest: Option<&Instance>,
        init: bool,
    ) -> ContainerState {
        let failure = self.state.failures.get(&container.name);
        match latest {
            Some(c) if c.state == RunState::Running => running(c),
            Some(c) if c.state == RunState::Exited => {
                if self.end.is_some() {
                    return self.terminated(c);
                }
                // A failure to start the next instance is newer than the last one's end.
                match failure.map(|f| self.failure(container, f)) {
                    Some(waiting) => waiting_state(waiting),
                    None => self
                        .crash_loop(container, c, init)
                        .map_or_else(|| self.terminated(c), waiting_state),
                }
            }
            Some(c) if c.state == RunState::Unknown && self.over => self.terminated(c),
            _ if self.over && self.state.rejected.is_none() && self.is_initialized() => lost(),
            _ => waiting_state(self.waiting(container, failure, init)),
        }
    }

    fn waiting(
        &self,
        container: &Container,
        failure: Option<&StartFailure>,
        init: bool,
    ) -> ContainerStateWaiting {
        if let Some(failure) = failure {
            return self.failure(container, failure);
        }
        let has_init = !spec::init_containers(self.pod).is_empty();
        let initializing = has_init && (init || !self.unfinished_init().is_empty());
        let reason = if initializing {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        ContainerStateWaiting {
            reason: Some(reason.into()),
            message: None,
        }
    }

    fn failure(&self, container: &Container, failure: &StartFailure) -> ContainerStateWaiting {
        let backs_off = failure.reason == "ErrImagePull" && self.now >= failure.at + ERROR_SHOWN;
        let (reason, message) = if backs_off {
            let image = container.image.as_deref().unwrap_or_default();
            let message = format!(
                "Back-off pulling image \"{image}\": ErrImagePull: {}",
                failure.message
            );
            ("ImagePullBackOff", message)
        } else {
            (failure.reason, failure.message.clone())
        };
        ContainerStateWaiting {
            reason: Some(reason.into()),
            message: Some(message),
        }
    }

    /// Set while a container that is to be started again waits.
    fn crash_loop(
        &self,
        container: &Container,
        c: &Instance,
        init: bool,
    ) -> Option<ContainerStateWaiting> {
        let policy = spec::restart_policy(self.pod);
        let restarts = if init {
            policy.restarts_init(c.exit_code)
        } else {
            policy.restarts(c.exit_code)
        };
        let key = crash_key(self.pod, &container.name);
        let failed = c.finished_at.unwrap_or(self.now);
        let waits = self
            .state
            .crashes
            .waits_until(&key, failed, self.now)
            .is_some();
        if !restarts || !waits || self.state.is_starting(&container.name) {
            return None;
        }
        let delay = go_duration(self.state.crashes.delay(&key));
        Some(ContainerStateWaiting {
            reason: Some("CrashLoopBackOff".into()),
            message: Some(format!(
                "back-off {delay} restarting failed container={} pod={}",
                container.name,
                spec::full_name(self.pod)
            )),
        })
    }

    /// How the instance before ended; the same instance while its successor waits.
    fn last_state(
        &self,
        container: &Container,
        latest: Option<&Instance>,
        waiting: bool,
    ) -> Option<ContainerState> {
        let ended = match latest {
            Some(c) if waiting && c.state == RunState::Exited => Some(c),
            Some(latest) => self
                .observed
                .before(latest)
                .filter(|c| c.state == RunState::Exited),
            None => None,
        };
        match ended {
            Some(c) => Some(self.terminated(c)),
            // The runtime forgot; the source has not.
            None => self.published(&container.name)?.last_state.clone(),
        }
    }

    fn terminated(&self, c: &Instance) -> ContainerState {
        let reason = match (c.reason.as_str(), c.exit_code) {
            ("", 0) => "Completed",
            ("", _) => "Error",
            (reason, _) => reason,
        };
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: c.exit_code,
                reason: Some(reason.into()),
                message: (!c.message.is_empty()).then(|| c.message.clone()),
                started_at: c.started_at.map(seconds),
                finished_at: c.finished_at.map(seconds),
                container_id: Some(self.container_id(c)),
                signal: None,
            }),
            ..ContainerState::default()
        }
    }
}

fn running(c: &Instance) -> ContainerState {
    let started_at = c.started_at.map(seconds);
    ContainerState {
        running: Some(ContainerStateRunning { started_at }),
        ..ContainerState::default()
    }
}

fn waiting_state(waiting: ContainerStateWaiting) -> ContainerState {
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// A container whose end nobody saw; kubelet's words and exit code.
fn lost() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some("The container could not be located when the pod was terminated".into()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// `10s`, `1m20s`, `5m0s`: the way Go prints it, which people grep for.
fn go_duration(duration: Duration) -> String {
    match duration.as_secs() {
        s if s < 60 => format!("{s}s"),
        s => format!("{}m{}s", s / 60, s % 60),
    }
}
