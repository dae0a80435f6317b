//! Whether this node's kernel keeps up with the API server.
//!
//! kube-proxy's rule: unhealthy is who has had something to write for too long.
//! Nothing to write is healthy for ever, so a missing API server is no illness,
//! and a 200 does not mean that any rule exists yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

pub(crate) mod server;
#[cfg(test)]
mod tests;

/// How long something may wait to be written: kube-proxy's 2 × syncPeriod.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The parts whose freshness is watched; kube-proxy has one per address family.
pub(crate) const SERVICES_V4: &str = "IPv4";
/// The pod network's; not in kube-proxy.
pub(crate) const POD_NETWORK: &str = "PodNetwork";

/// What decides about health; shared by those who write and those who ask.
#[derive(Debug)]
pub(crate) struct Health {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    parts: BTreeMap<&'static str, Part>,
    node_eligible: bool,
    started: Timestamp,
}

#[derive(Debug)]
struct Part {
    updated: Timestamp,
    /// Since when the oldest thing that is not written yet has waited.
    waiting: Option<Instant>,
}

/// The body of `/healthz` and `/livez`, field for field kube-proxy's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    last_updated: Timestamp,
    current_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    status: BTreeMap<&'static str, PartReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartReport {
    last_updated: Timestamp,
    healthy: bool,
}

impl Health {
    /// Healthy, on a node that has not been seen yet.
    pub(crate) fn new() -> Self {
        let state = State {
            parts: BTreeMap::new(),
            node_eligible: false,
            started: Timestamp::now(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// `part` has something to write, since `now` if nothing waits already.
    pub(crate) fn queued(&self, part: &'static str, now: Instant) {
        let mut state = self.lock();
        let updated = state.started;
        let part = state.parts.entry(part).or_insert(Part {
            updated,
            waiting: None,
        });
        part.waiting.get_or_insert(now);
    }

    /// `part` has written what it had.
    pub(crate) fn updated(&self, part: &'static str) {
        let done = Part {
            updated: Timestamp::now(),
            waiting: None,
        };
        self.lock().parts.insert(part, done);
    }

    /// Whether cloud load balancers should send traffic to this node (KEP-3836).
    pub(crate) fn set_node_eligible(&self, eligible: bool) {
        self.lock().node_eligible = eligible;
    }

    /// `/livez`: a restart of the process may help if this is not healthy.
    pub(crate) fn livez(&self, now: Instant) -> (bool, Report) {
        let report = self.lock().report(now);
        (report.healthy, report)
    }

    /// Whether the service proxy keeps up, for its health checks: neither the pod
    /// network nor what becomes of the Node matters there.
    pub(crate) fn services_healthy(&self, now: Instant) -> bool {
        let state = self.lock();
        let part = state.parts.get(SERVICES_V4);
        part.is_none_or(|part| part.healthy(now))
    }

    /// `/healthz`: `/livez`, and whether the node should get traffic from outside.
    pub(crate) fn healthz(&self, now: Instant) -> (bool, Report) {
        let state = self.lock();
        let mut report = state.report(now);
        report.node_eligible = Some(state.node_eligible);
        if !state.node_eligible && report.healthy {
            report.last_updated = state.newest_update();
        }
        (report.healthy && state.node_eligible, report)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Every write below leaves the state whole, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn report(&self, now: Instant) -> Report {
        let current_time = Timestamp::now();
        let healthy = self.parts.values().all(|part| part.healthy(now));
        Report {
            last_updated: if healthy {
                current_time
            } else {
                self.newest_update()
            },
            current_time,
            node_eligible: None,
            healthy,
            status: self
                .parts
                .iter()
                .map(|(name, part)| {
                    (
                        *name,
                        PartReport {
                            last_updated: part.updated,
                            healthy: part.healthy(now),
                        },
                    )
                })
                .collect(),
        }
    }

    fn newest_update(&self) -> Timestamp {
        self.parts
            .values()
            .map(|part| part.updated)
            .max()
            .unwrap_or(self.started)
    }
}

impl Part {
    fn healthy(&self, now: Instant) -> bool {
        self.waiting
            .is_none_or(|since| now.duration_since(since) < TIMEOUT)
    }
}
