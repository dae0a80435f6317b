//! The way down: containers, sandboxes, volumes, object.

use super::{Action, End, Operation, Planner, StopReason};
use crate::observed::RunState;
use crate::spec;

impl Planner<'_> {
    pub(super) fn terminate(&mut self, end: End) {
        self.plan.terminating = true;
        self.stop_containers();
        // A start or a sandbox that is being made must end first, else it would
        // outlive the pod; the shell cancels what can be cancelled.
        let busy = self.state.in_flight().iter().any(|operation| {
            matches!(
                operation,
                Operation::Volumes | Operation::Sandbox | Operation::Start(_)
            )
        });
        if busy || self.observed.is_running() || !self.stop_sandboxes() {
            return;
        }
        self.plan.ended = true;
        if end != End::Removed {
            // Logs and the ended containers stay for as long as the object does.
            if !self.state.torn_down {
                self.push(Action::Teardown);
            }
            return;
        }
        for sandbox in &self.observed.sandboxes {
            self.push(Action::RemoveSandbox {
                id: sandbox.id.clone(),
            });
        }
        let orphans = self.observed.containers.iter().filter(|c| {
            !self
                .observed
                .sandboxes
                .iter()
                .any(|sandbox| sandbox.id == c.sandbox_id)
        });
        for container in orphans {
            self.push(Action::RemoveContainer {
                id: container.id.clone(),
            });
        }
        if !self.observed.sandboxes.is_empty() || !self.observed.containers.is_empty() {
            return;
        }
        if !self.state.torn_down {
            self.push(Action::Teardown);
        } else if !self.state.logs_removed {
            self.push(Action::RemoveLogs);
        } else if !self.state.finished {
            self.push(Action::Finish);
        }
    }

    fn stop_containers(&mut self) {
        let grace = spec::grace(self.pod);
        for container in &self.observed.containers {
            if matches!(container.state, RunState::Running | RunState::Unknown) {
                self.stop(&container.id, &container.name, grace, StopReason::PodEnds);
            }
        }
    }

    /// Stops every sandbox once, ready or not: only a stop releases the network of
    /// one that died with the node. True when all are stopped.
    fn stop_sandboxes(&mut self) -> bool {
        let mut stopped = true;
        for sandbox in &self.observed.sandboxes {
            if sandbox.ready || !self.state.stopped_sandboxes.contains(&sandbox.id) {
                stopped = false;
                self.push(Action::StopSandbox {
                    id: sandbox.id.clone(),
                });
            }
        }
        stopped
    }
}
