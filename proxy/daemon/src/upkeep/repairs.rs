//! What was lost, and having it written again.

use std::collections::BTreeSet;
use std::sync::Arc;

use seaway_firewall::{Firewall, FirewallError, State};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};

use super::LookPanicked;
use super::metrics::Metrics;
use super::plugin::{Called, Plugin};
use crate::chain::Chain;

#[cfg(test)]
mod tests;

/// A repair that somebody undoes at once is not repeated more often than this; the next
/// look tries again.
const ATTEMPTS: usize = 3;

/// The memory between looks.
#[derive(Debug)]
pub(super) struct Repairs {
    plugin: Arc<Plugin>,
    metrics: Metrics,
    pod_network: Arc<Notify>,
    /// What was there when all was well.
    settled: State,
    generation: Option<u32>,
    /// Whether the plugin is to be called whatever a look shows.
    due: bool,
    /// Whether the pod network is to have a look at what it writes.
    removed: bool,
    /// How often in a row the masquerade has been asked for in vain.
    asked: usize,
    failing: bool,
    /// What has been said of the last repair.
    skipped: BTreeSet<String>,
    failures: BTreeSet<String>,
}

/// What `seaway-cni repair` says.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    host_ports: u64,
    rules: bool,
    forward: bool,
    /// An older plugin does not have them.
    #[serde(default)]
    links: u64,
    #[serde(default)]
    routes: u64,
    #[serde(default)]
    settings: u64,
    skipped: BTreeSet<String>,
    failures: BTreeSet<String>,
}

impl Report {
    fn wrote(&self) -> bool {
        let rules = self.host_ports > 0 || self.rules || self.forward;
        rules || self.has_routed() || self.settings > 0
    }

    fn has_routed(&self) -> bool {
        self.links > 0 || self.routes > 0
    }
}

impl Repairs {
    pub(super) fn new(plugin: Arc<Plugin>, metrics: Metrics, pod_network: Arc<Notify>) -> Self {
        Self {
            plugin,
            metrics,
            pod_network,
            settled: State::default(),
            generation: None,
            // What was flushed before we came.
            due: true,
            removed: false,
            asked: 0,
            failing: false,
            skipped: BTreeSet::new(),
            failures: BTreeSet::new(),
        }
    }

    /// The next look has the plugin called in any case.
    pub(super) fn in_any_case(&mut self) {
        self.due = true;
    }

    /// Rules of ours were removed, and may have been put back by now.
    pub(super) fn removed(&mut self) {
        self.due = true;
        self.removed = true;
    }

    /// Looks, and puts back what was lost.
    pub(super) async fn look(&mut self) -> Result<(), LookPanicked> {
        let unchanged = self.generation.filter(|_| !self.due && self.asked == 0);
        let Some((generation, state)) = self.see(unchanged).await? else {
            return Ok(());
        };
        let lost = state.lost_since(&self.settled);
        self.generation = Some(generation);
        if lost.masquerade && self.asked < ATTEMPTS {
            if self.asked == 0 {
                info!("The masquerade of pods has been removed, writing it again");
                self.metrics.repaired("masquerade");
            }
            self.asked += 1;
            self.removed = true;
        } else {
            self.asked = 0;
        }
        if std::mem::take(&mut self.removed) {
            self.pod_network.notify_one();
        }
        if lost.host_ports || lost.forward || self.due {
            self.repair().await
        } else {
            self.settle(state);
            Ok(())
        }
    }

    /// Repeats until there is nothing left to write: what was there before that call is
    /// what has to stay.
    async fn repair(&mut self) -> Result<(), LookPanicked> {
        self.due = true;
        for _ in 0..ATTEMPTS {
            let Some((_, state)) = self.see(None).await? else {
                return Ok(());
            };
            match self.plugin.call::<Report>("repair").await {
                Called::Report(report) => {
                    self.tell(&report);
                    if !report.wrote() {
                        self.due = !report.failures.is_empty();
                        self.settle(state);
                        return Ok(());
                    }
                }
                Called::Absent => {
                    self.due = false;
                    self.settle(state);
                    return Ok(());
                }
                Called::Failed => {
                    self.metrics.failed("repair");
                    return Ok(());
                }
            }
        }
        warn!("Somebody keeps removing our rules from the firewall");
        Ok(())
    }

    /// As long as the pod network has not answered, its part is missed.
    fn settle(&mut self, state: State) {
        let before = std::mem::take(&mut self.settled);
        self.settled = if self.asked > 0 {
            state.with_masquerade_of(&before)
        } else {
            state
        };
    }

    /// `None`: nothing has changed since that generation, or it cannot be seen.
    async fn see(&mut self, since: Option<u32>) -> Result<Option<(u32, State)>, LookPanicked> {
        let looked = spawn_blocking(move || see(since)).await;
        match looked.map_err(LookPanicked)? {
            Ok(seen) => {
                self.failing = false;
                Ok(seen)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    warn!(error = %Chain(&error), "Cannot look at the firewall, trying again");
                }
                self.generation = None;
                Ok(None)
            }
        }
    }

    fn tell(&mut self, report: &Report) {
        if report.wrote() {
            let (host_ports, forward) = (report.host_ports, report.forward);
            let (links, routes, settings) = (report.links, report.routes, report.settings);
            info!(
                host_ports,
                forward, links, routes, settings, "Put back what pods were missing on this node"
            );
        }
        if report.host_ports > 0 || report.rules {
            self.metrics.repaired("hostPorts");
        }
        if report.forward {
            self.metrics.repaired("forward");
        }
        if report.has_routed() {
            self.metrics.repaired("routes");
        }
        if report.settings > 0 {
            self.metrics.repaired("settings");
        }
        self.tell_once(report);
        if !report.wrote() && report.failures.is_empty() {
            debug!("The firewall is as it should be");
        }
    }

    /// What stays as it is is not told with every look.
    fn tell_once(&mut self, report: &Report) {
        for reason in report.skipped.difference(&self.skipped) {
            warn!(reason, "Skipped something in a repair of the firewall");
        }
        for error in &report.failures {
            self.metrics.failed("repair");
            if self.failures.contains(error) {
                debug!(error, "Still cannot repair a part of the firewall");
            } else {
                warn!(error, "Cannot repair a part of the firewall, trying again");
            }
        }
        self.skipped.clone_from(&report.skipped);
        self.failures.clone_from(&report.failures);
    }
}

fn see(since: Option<u32>) -> Result<Option<(u32, State)>, FirewallError> {
    let mut firewall = Firewall::open()?;
    let generation = firewall.generation()?;
    if since == Some(generation) && !Firewall::has_silent_rules() {
        return Ok(None);
    }
    Ok(Some((generation, firewall.state()?)))
}
