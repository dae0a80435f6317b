//! Having removed what dead pods have left.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use tracing::{debug, info, warn};

use super::metrics::Metrics;
use super::plugin::{Called, Plugin};

/// The memory between sweeps.
#[derive(Debug)]
pub(super) struct Sweeps {
    plugin: Arc<Plugin>,
    metrics: Metrics,
    told: BTreeSet<String>,
}

/// What `seaway-cni sweep` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    released: Vec<Released>,
    removed_links: Vec<String>,
    waiting: usize,
    alive_without_record: BTreeSet<String>,
    purged_boots: usize,
    skipped: BTreeSet<String>,
    failures: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Released {
    container_id: String,
    ifname: String,
    addresses: Vec<String>,
}

impl Sweeps {
    pub(super) fn new(plugin: Arc<Plugin>, metrics: Metrics) -> Self {
        let told = BTreeSet::new();
        Self {
            plugin,
            metrics,
            told,
        }
    }

    /// One look; what looked dead the last time and still does goes.
    pub(super) async fn sweep(&mut self) {
        match self.plugin.call::<Report>("sweep").await {
            Called::Report(report) => self.tell(&report),
            Called::Absent => {}
            Called::Failed => self.metrics.failed("sweep"),
        }
    }

    fn tell(&mut self, report: &Report) {
        for one in &report.released {
            let (container_id, ifname) = (&one.container_id, &one.ifname);
            info!(container_id, ifname, addresses = ?one.addresses, "Released what a dead pod had left");
        }
        for ifname in &report.removed_links {
            info!(ifname, "Removed an interface that had no pod");
        }
        self.metrics
            .swept("attachment", report.released.len() as u64);
        self.metrics
            .swept("link", report.removed_links.len() as u64);
        if !report.failures.is_empty() {
            self.metrics.failed("sweep");
        }
        let (waiting, purged_boots) = (report.waiting, report.purged_boots);
        debug!(waiting, purged_boots, "Looked for what dead pods have left");
        self.tell_once(report);
    }

    /// What stays as it is is not told with every sweep.
    fn tell_once(&mut self, report: &Report) {
        let alive = report.alive_without_record.iter();
        let alive = alive.map(|ifname| format!("{ifname} is alive and has no record"));
        let now: BTreeSet<String> = alive
            .chain(report.skipped.iter().cloned())
            .chain(report.failures.iter().cloned())
            .collect();
        for reason in now.difference(&self.told) {
            warn!(reason, "Left something of a pod where it is");
        }
        self.told = now;
    }
}
