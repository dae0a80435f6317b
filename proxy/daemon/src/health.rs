//! Whether this node's kernel keeps up with the API server.
//!
//! kube-proxy's rule: unhealthy is who has had something to write for too long.
//! Nothing to write is healthy for ever, so a missing API server is no illness,
//! and a 200 does not mean that any rule exists yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use seaway_proxy_core::desired::Family;
use serde::Serialize;
use tokio::time::Instant;

pub(crate) mod server;
#[cfg(test)]
mod tests;

/// The parts whose freshness is watched; kube-proxy has one per address family.
pub(crate) fn services(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// The pod network's; not in kube-proxy.
pub(crate) const POD_NETWORK: &str = "PodNetwork";
/// The CNI conf's; not in kube-proxy.
pub(crate) const CNI_CONF: &str = "CNIConf";

/// What decides about health; shared by those who write and those who ask.
#[derive(Debug)]
pub(crate) struct Health {
    /// How long something may wait to be written: kube-proxy's 2 × syncPeriod.
    timeout: Duration,
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
    /// Whether the last write has left something out.
    lacking: bool,
}

/// How fresh a part is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    /// When it last had nothing more to write.
    pub(crate) updated: Timestamp,
    /// Whether it still has not.
    pub(crate) done: bool,
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
    /// Healthy, on a node that has not been seen yet; ill when something has waited to be
    /// written for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        let state = State {
            parts: BTreeMap::new(),
            node_eligible: false,
            started: Timestamp::now(),
        };
        Self {
            timeout,
            state: Mutex::new(state),
        }
    }

    /// `part` has something to write, since `now` if nothing waits already.
    pub(crate) fn queued(&self, part: &'static str, now: Instant) {
        self.lock().part(part).waiting.get_or_insert(now);
    }

    /// `part` has written what it had.
    pub(crate) fn updated(&self, part: &'static str) {
        let done = Part {
            updated: Timestamp::now(),
            waiting: None,
            lacking: false,
        };
        self.lock().parts.insert(part, done);
    }

    /// `part` has written what it had, except for something that concerns one peer or the like:
    /// it is not done, and not ill either.
    pub(crate) fn partly_updated(&self, part: &'static str) {
        let mut state = self.lock();
        let part = state.part(part);
        (part.waiting, part.lacking) = (None, true);
    }

    /// Whether cloud load balancers should send traffic to this node (KEP-3836).
    pub(crate) fn set_node_eligible(&self, eligible: bool) {
        self.lock().node_eligible = eligible;
    }

    /// How fresh a part is; none before its first round.
    pub(crate) fn part(&self, part: &'static str) -> Option<Freshness> {
        let state = self.lock();
        let part = state.parts.get(part)?;
        Some(Freshness {
            updated: part.updated,
            done: part.waiting.is_none() && !part.lacking,
        })
    }

    /// `/livez`: a restart of the process may help if this is not healthy.
    ///
    /// Services alone count. What keeps the pod network or the CNI conf from being written, such
    /// as somebody else's route, a link that is late or a full disk, is there after a restart,
    /// too, and nobody would follow Services meanwhile.
    pub(crate) fn livez(&self, now: Instant) -> (bool, Report) {
        let is_services = |name: &str| Family::ALL.into_iter().any(|of| services(of) == name);
        let report = self.lock().report(now, self.timeout, is_services);
        (report.healthy, report)
    }

    /// Whether the service proxy keeps up, for its health checks: neither the pod
    /// network nor what becomes of the Node matters there.
    pub(crate) fn services_healthy(&self, now: Instant) -> bool {
        let state = self.lock();
        Family::ALL.into_iter().all(|family| {
            let part = state.parts.get(services(family));
            part.is_none_or(|part| part.healthy(now, self.timeout))
        })
    }

    /// `/healthz`: whether the node should get traffic from outside, for which every part counts:
    /// without the pod network Services have no endpoints on other nodes.
    pub(crate) fn healthz(&self, now: Instant) -> (bool, Report) {
        let state = self.lock();
        let mut report = state.report(now, self.timeout, |_| true);
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
    fn part(&mut self, name: &'static str) -> &mut Part {
        let new = Part {
            updated: self.started,
            waiting: None,
            lacking: false,
        };
        self.parts.entry(name).or_insert(new)
    }

    /// Of those parts that count.
    fn report(&self, now: Instant, timeout: Duration, counts: impl Fn(&str) -> bool) -> Report {
        let current_time = Timestamp::now();
        let parts = || self.parts.iter().filter(|(name, _)| counts(name));
        let healthy = parts().all(|(_, part)| part.healthy(now, timeout));
        Report {
            last_updated: if healthy {
                current_time
            } else {
                self.newest_update()
            },
            current_time,
            node_eligible: None,
            healthy,
            status: parts()
                .map(|(name, part)| {
                    (
                        *name,
                        PartReport {
                            last_updated: part.updated,
                            healthy: part.healthy(now, timeout),
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
    fn healthy(&self, now: Instant, timeout: Duration) -> bool {
        self.waiting
            .is_none_or(|since| now.duration_since(since) < timeout)
    }
}
