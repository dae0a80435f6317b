//! What a worker waits for: the first of everything that can happen to its pod.

use std::time::Duration;

use jiff::Timestamp;
use seaway_agent_core::spec;
use seaway_agent_core::step::{Action, Operation, Plan};
use tokio::time::Instant;
use tracing::warn;

use super::Worker;

/// How often config volumes and tokens are brought up to date; kubelet's period.
const VOLUME_REFRESH: Duration = Duration::from_mins(1);

impl Worker {
    /// Waits for something to happen; whether the runtime must be looked at again.
    pub(super) async fn wait(&mut self, wake_at: Option<Timestamp>) -> bool {
        let now = Instant::now();
        let planned = wake_at.map(|at| {
            let left = at.duration_since(Timestamp::now());
            // A little later than the moment itself, so that it has surely passed.
            now + left.unsigned_abs().saturating_add(Duration::from_millis(5))
        });
        let refresh = self.refresh_at();
        let timer = [planned, refresh, self.reconcile_at, self.error_shown_at()];
        let timer = timer.into_iter().flatten().min();
        tokio::select! {
            Some(ended) = self.operations.join_next() => {
                match ended {
                    Ok((operation, outcome)) => self.ended(&operation, outcome),
                    Err(error) => warn!(pod = %spec::key(&self.pod), %error, "Operation broke off"),
                }
                true
            }
            changed = self.desired.changed() => {
                if changed.is_err() {
                    // The manager is gone: the agent ends, the pod runs on.
                    std::future::pending::<()>().await;
                }
                false
            }
            () = self.wake.notified() => true,
            result = self.probes.next() => {
                self.note(&result);
                false
            }
            Ok(()) = self.runtime.changed() => false,
            () = sleep_until(timer) => {
                self.refresh_volumes();
                false
            }
        }
    }

    /// When a failed pull turns into a back-off, which people see.
    fn error_shown_at(&self) -> Option<Instant> {
        let newest = self
            .state
            .failures
            .values()
            .filter(|f| f.reason == "ErrImagePull");
        let at = newest.map(|f| f.at + Duration::from_secs(2)).max()?;
        let left = at.duration_since(Timestamp::now());
        left.is_positive()
            .then(|| Instant::now() + left.unsigned_abs() + Duration::from_millis(5))
    }

    fn refresh_at(&self) -> Option<Instant> {
        let runs =
            self.state.volumes_ready && !self.volumes.is_empty() && !self.cancel.is_cancelled();
        runs.then(|| self.refreshed + VOLUME_REFRESH)
    }

    /// Brings config volumes and tokens up to date, beside the loop.
    fn refresh_volumes(&mut self) {
        if self.refresh_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.refreshed = Instant::now();
        let busy = self.state.in_flight().contains(&Operation::Volumes);
        if !busy {
            let plan = Plan {
                actions: vec![Action::PrepareVolumes],
                ..Plan::default()
            };
            self.begin(&plan, Timestamp::now());
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
