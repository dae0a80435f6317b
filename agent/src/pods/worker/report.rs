//! What a worker tells others: the status, and events about what goes on.

use std::time::Duration;

use jiff::Timestamp;
use seaway_agent_core::spec;
use seaway_agent_core::status::{EPHEMERAL_MESSAGE, EPHEMERAL_REASON, new_ephemeral, status};
use seaway_agent_core::step::{Action, Plan};
use tokio::time::Instant;

use super::Worker;
use crate::objects::EventType;
use crate::pods::View;

impl Worker {
    /// Computes the status, shows it to everybody, and tells of what waits.
    pub(super) async fn report(&mut self, plan: &Plan, now: Timestamp) {
        if self.final_status.is_none() {
            self.renew_status(plan, now);
        } else {
            self.pod.status.clone_from(&self.final_status);
        }
        if self.reconcile_at.is_some_and(|at| at <= Instant::now()) && !self.state.gone {
            self.reconcile_at = None;
            let status = self.pod.status.clone();
            self.statuses.send_replace(status);
        }
        let view = View {
            pod: self.pod.clone(),
            observed: self.observed.clone(),
        };
        let uid = spec::uid(&self.pod).to_owned();
        self.shared.write_views().insert(uid, view);
        self.announce_back_offs(plan);
        if plan.actions.contains(&Action::Finish) {
            // The last write is the operation's; nothing may come after it.
            self.publisher.shutdown().await;
        }
    }

    fn renew_status(&mut self, plan: &Plan, now: Timestamp) {
        let facts = self.shared.facts();
        let status = status(&self.pod, &self.state, &self.observed, &facts, now);
        self.announce_ephemeral();
        self.state.api_status = status.clone();
        if plan.ended {
            // From here on the runtime forgets; what is known now is the last word.
            self.final_status = Some(status.clone());
        }
        let changed = self.statuses.borrow().as_ref() != Some(&status);
        let published = self.desired.borrow().pod.status.as_ref() == Some(&status);
        if changed && !self.state.gone {
            // The first status is not written where the source has it already.
            let silent = published && self.statuses.borrow().is_none();
            if silent {
                self.statuses.send_if_modified(|slot| {
                    *slot = Some(status.clone());
                    false
                });
            } else {
                self.statuses.send_replace(Some(status.clone()));
            }
        }
        self.pod.status = Some(status);
    }

    /// Against the status before this one, also an earlier agent's: told only once.
    fn announce_ephemeral(&self) {
        for name in new_ephemeral(&self.pod, &self.state.api_status) {
            let (kind, message) = (EventType::Warning, EPHEMERAL_MESSAGE.to_owned());
            self.shared
                .container_event(&self.pod, name, kind, EPHEMERAL_REASON, message);
        }
    }

    pub(super) fn announce_rejection(&self) {
        if let Some(rejection) = &self.state.rejected {
            let message = format!("Pod was rejected: {}", rejection.message);
            self.shared
                .event(&self.pod, EventType::Warning, rejection.reason, message);
        }
    }

    fn announce_back_offs(&mut self, plan: &Plan) {
        for name in &plan.backing_off {
            let Some(ended) = self.observed.latest(name) else {
                continue;
            };
            if self.announced.insert(ended.id.clone()) {
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}",
                    spec::full_name(&self.pod)
                );
                let warning = EventType::Warning;
                self.shared
                    .container_event(&self.pod, name, warning, "BackOff", message);
            }
        }
        self.announce_failed_pulls();
        let observed = &self.observed;
        self.announced
            .retain(|id| id == "network" || observed.containers.iter().any(|c| c.id == *id));
        // Before the runtime's first answer there is nothing to tell.
        let why = self.runtime.borrow().message.clone();
        let waits = plan.waits_for_network && !why.is_empty();
        if waits && self.announced.insert("network".into()) {
            let message = format!("network is not ready: {why}");
            self.shared
                .event(&self.pod, EventType::Warning, "NetworkNotReady", message);
        }
    }

    /// Tells of pulls that failed and wait, once for each failure.
    fn announce_failed_pulls(&mut self) {
        let now = Timestamp::now();
        let shown = |at: Timestamp| at + Duration::from_secs(2) <= now;
        let failed = self.state.failures.iter();
        let waiting: Vec<String> = failed
            .filter(|(_, f)| f.reason == "ErrImagePull" && shown(f.at))
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            let Some(failure) = self.state.failures.get_mut(&name) else {
                continue;
            };
            if std::mem::replace(&mut failure.announced, true) {
                continue;
            }
            let image = spec::container(&self.pod, &name).and_then(|c| c.image.clone());
            let image = image.unwrap_or_default();
            for (kind, reason, message) in [
                (
                    EventType::Normal,
                    "BackOff",
                    format!("Back-off pulling image \"{image}\""),
                ),
                (
                    EventType::Warning,
                    "Failed",
                    "Error: ImagePullBackOff".to_owned(),
                ),
            ] {
                self.shared
                    .container_event(&self.pod, &name, kind, reason, message);
            }
        }
    }
}
