//! The way up: volumes, sandbox, init containers, app containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::{Action, Planner, StopReason};
use crate::observed::{Instance, RunState, Sandbox};
use crate::spec;
use crate::state::crash_key;

/// How often a pod that waits for the node's network looks again.
const NETWORK_RETRY: Duration = Duration::from_secs(1);

impl Planner<'_> {
    pub(super) fn sync(&mut self) {
        if !self.state.volumes_ready {
            self.push(Action::PrepareVolumes);
            return;
        }
        let current = self.current_sandbox().cloned();
        let stale_stopped = self.stop_stale_sandboxes(current.as_ref());
        let Some(sandbox) = current else {
            if stale_stopped {
                self.create_sandbox();
            }
            return;
        };
        if self.init_containers(&sandbox) {
            let pod = self.pod;
            for container in spec::containers(pod) {
                self.app_container(&sandbox, container);
            }
            self.remove_stale_sandboxes(&sandbox);
        }
        self.prune();
    }

    fn current_sandbox(&self) -> Option<&Sandbox> {
        let host_network = spec::host_network(self.pod);
        self.observed.newest_sandbox().filter(|sandbox| {
            sandbox.ready
                && !self.state.stopped_sandboxes.contains(&sandbox.id)
                && (host_network || !sandbox.ips.is_empty())
        })
    }

    /// True when every sandbox but the current one is stopped.
    fn stop_stale_sandboxes(&mut self, current: Option<&Sandbox>) -> bool {
        let mut stopped = true;
        for sandbox in &self.observed.sandboxes {
            let is_current = current.is_some_and(|current| current.id == sandbox.id);
            let done = !sandbox.ready && self.state.stopped_sandboxes.contains(&sandbox.id);
            if !is_current && !done {
                stopped = false;
                self.push(Action::StopSandbox {
                    id: sandbox.id.clone(),
                });
            }
        }
        stopped
    }

    /// A stale sandbox goes, with its containers, when each of them has a successor.
    fn remove_stale_sandboxes(&mut self, current: &Sandbox) {
        let replaced = spec::containers(self.pod)
            .iter()
            .all(|c| self.observed.latest_in(&current.id, &c.name).is_some());
        for sandbox in &self.observed.sandboxes {
            let stopped = self.state.stopped_sandboxes.contains(&sandbox.id);
            if replaced && stopped && sandbox.id != current.id {
                self.push(Action::RemoveSandbox {
                    id: sandbox.id.clone(),
                });
            }
        }
    }

    fn create_sandbox(&mut self) {
        if !self.state.network_ready && !spec::host_network(self.pod) {
            self.plan.waits_for_network = true;
            self.wake(self.now + NETWORK_RETRY);
            return;
        }
        let attempt = self
            .observed
            .newest_sandbox()
            .map_or(0, |sandbox| sandbox.attempt + 1);
        self.push(Action::CreateSandbox { attempt });
    }

    /// Runs init containers one after the other; true when all have succeeded.
    fn init_containers(&mut self, sandbox: &Sandbox) -> bool {
        let (pod, observed) = (self.pod, self.observed);
        // The runtime may have lost ended init containers; an app container in
        // this sandbox proves that they had succeeded.
        let app_exists = spec::containers(pod)
            .iter()
            .any(|c| observed.latest_in(&sandbox.id, &c.name).is_some());
        if app_exists {
            return true;
        }
        let policy = spec::restart_policy(pod);
        for container in spec::init_containers(pod) {
            match observed.latest_in(&sandbox.id, &container.name) {
                Some(c) if c.state == RunState::Exited && c.exit_code == 0 => {}
                Some(c) if c.state == RunState::Exited => {
                    if policy.restarts_init(c.exit_code) {
                        self.restart(sandbox, container, c);
                    }
                    return false;
                }
                Some(c) => {
                    self.unfinished(container, c);
                    return false;
                }
                None => {
                    self.start(sandbox, container, false);
                    return false;
                }
            }
        }
        true
    }

    fn app_container(&mut self, sandbox: &Sandbox, container: &Container) {
        let observed = self.observed;
        match observed.latest_in(&sandbox.id, &container.name) {
            Some(c) if c.state == RunState::Exited => {
                if spec::restart_policy(self.pod).restarts(c.exit_code) {
                    self.restart(sandbox, container, c);
                }
            }
            Some(c) => self.unfinished(container, c),
            None => {
                // In an earlier sandbox it may have ended for good.
                let over = observed.latest(&container.name).is_some_and(|c| {
                    c.state == RunState::Exited
                        && !spec::restart_policy(self.pod).restarts(c.exit_code)
                });
                if !over {
                    self.start(sandbox, container, false);
                }
            }
        }
    }

    /// A container that has not ended: is it to be left alone?
    fn unfinished(&mut self, container: &Container, c: &Instance) {
        match c.state {
            RunState::Created => {
                // Left behind between create and start; never a running process.
                if !self.state.is_starting(&container.name) {
                    self.push(Action::RemoveContainer { id: c.id.clone() });
                }
            }
            RunState::Unknown => {
                self.stop(&c.id, &c.name, spec::grace(self.pod), StopReason::Changed);
            }
            RunState::Running => {
                if c.hash != spec::container_hash(container) {
                    self.stop(&c.id, &c.name, spec::grace(self.pod), StopReason::Changed);
                } else if let Some(probe) = self.state.probes.get(&c.id).and_then(|p| p.failed) {
                    let grace = probe_grace(container, probe);
                    let grace = grace.unwrap_or_else(|| spec::grace(self.pod));
                    self.stop(&c.id, &c.name, grace, StopReason::ProbeFailed(probe));
                }
            }
            RunState::Exited => {}
        }
    }

    fn restart(&mut self, sandbox: &Sandbox, container: &Container, ended: &Instance) {
        let key = crash_key(self.pod, &container.name);
        let failed = ended.finished_at.unwrap_or(self.now);
        if self.state.is_starting(&container.name) {
            return;
        }
        if let Some(until) = self.state.crashes.waits_until(&key, failed, self.now) {
            self.plan.backing_off.push(container.name.clone());
            self.wake(until);
            return;
        }
        self.start(sandbox, container, true);
    }

    fn start(&mut self, sandbox: &Sandbox, container: &Container, restart: bool) {
        let attempt = next_attempt(self, &container.name);
        self.push(Action::StartContainer {
            name: container.name.clone(),
            attempt,
            sandbox_id: sandbox.id.clone(),
            restart,
        });
    }

    /// Keeps one ended instance beside the newest, for `logs --previous`.
    fn prune(&mut self) {
        let observed = self.observed;
        for container in spec::all_containers(self.pod) {
            let newest = observed.latest(&container.name);
            let latest = newest.map(|c| &c.id);
            let previous = newest.and_then(|c| observed.before(c)).map(|c| &c.id);
            for c in observed.instances(&container.name) {
                let kept = Some(&c.id) == latest || Some(&c.id) == previous;
                if !kept && c.state == RunState::Exited {
                    self.push(Action::RemoveContainer { id: c.id.clone() });
                }
            }
        }
    }
}

fn probe_grace(container: &Container, probe: &str) -> Option<Duration> {
    let probe = match probe {
        "startup" => container.startup_probe.as_ref(),
        _ => container.liveness_probe.as_ref(),
    };
    let seconds = probe?.termination_grace_period_seconds?;
    Some(Duration::from_secs(
        u64::try_from(seconds).unwrap_or(0).max(1),
    ))
}

/// One more than any instance the runtime or the source remembers.
fn next_attempt(planner: &Planner<'_>, name: &str) -> u32 {
    let seen = planner
        .observed
        .instances(name)
        .map(|c| c.attempt + 1)
        .max();
    let status = &planner.state.api_status;
    let published = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten()
        .find(|status| status.name == name && status.container_id.is_some())
        .map(|status| u32::try_from(status.restart_count).unwrap_or(0) + 1);
    seen.max(published).unwrap_or(0)
}
