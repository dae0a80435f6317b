//! One round: what is known is compiled, goes to the kernel, and what came of it is told.

use std::time::Duration;

use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::{SyncError, SyncReport, fingerprint, sync_once};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::node;
use super::rounds::Rounds;
use super::sync::SyncLoop;
use crate::chain::Chain;
use crate::explain::GoodRound;
use crate::health;
use crate::health_checks::Wanted;
use crate::metrics::Round;
use crate::outage::Outage;

#[cfg(test)]
mod tests;

impl SyncLoop {
    pub(super) async fn round<B: Backend>(
        &self,
        backend: &mut B,
        rounds: &mut Rounds<B::Rendered>,
    ) -> Result<(), Retry> {
        let started = Instant::now();
        let services = self.metrics.service_changes.pending();
        let endpoints = self.metrics.endpoint_changes.pending();
        let mut triggers = Some(self.feed.triggers());
        let wanted = self.compile(backend, rounds);
        // Not kept beside what is read, which is as large.
        let (have, believed) = if rounds.read_back_due(started) {
            (None, rounds.have.take().as_ref().map(fingerprint))
        } else {
            (rounds.have.take(), None)
        };
        let full = have.is_none();
        let desired = rounds.compiler.desired();
        let result = sync_once(backend, have, desired).await;
        let elapsed = started.elapsed();
        self.ended(full, elapsed, backend.families(), result.as_ref().err());
        let report = result.map_err(|failed| {
            self.feed.not_programmed(triggers.take());
            // What is known of the kernel has been taken above, so the next round reads it back.
            self.failed(
                backend,
                rounds.failures,
                &mut rounds.outage,
                &failed,
                &wanted,
            )
        })?;
        self.metrics.service_changes.applied(services);
        self.metrics.endpoint_changes.applied(endpoints);
        for (family, trigger) in triggers.take().unwrap_or_default() {
            self.metrics.programmed(family, trigger);
        }
        self.tell_load_balancers(|_| wanted);
        let drift = match believed {
            Some(_) => report.found != believed,
            // After a failure, which may be what somebody else's change has led to.
            None => full && rounds.is_disturbed() && report.changed,
        };
        let looked = full && rounds.is_disturbed();
        let round = GoodRound {
            desired,
            skipped: rounds.skipped,
            repaired: drift && report.changed,
        };
        self.metrics.drift.looked(looked, round.repaired);
        let again = rounds.outage.over();
        self.succeeded(backend, &round, &report, again, elapsed);
        rounds.have = Some(report.rendered);
        rounds.took(full.then_some(drift), elapsed, backend.is_watched());
        Ok(())
    }

    /// Tells of a failure what is to be told, and when to try again.
    fn failed<B: Backend>(
        &self,
        backend: &B,
        failures: u32,
        outage: &mut Outage,
        failed: &SyncError,
        wanted: &Wanted,
    ) -> Retry {
        self.metrics.settled(&failed.settled);
        if let Some(family) = failed.error.family() {
            self.tell_load_balancers(|known| wanted.clone().without_news_of(family, known));
        }
        log_failure(backend.name(), &failed.error, failures, outage);
        self.desk.failed(backend, &failed.error);
        failed.error.retry()
    }

    /// Tells of a good round; `again`: after some that were none.
    fn succeeded<B: Backend>(
        &self,
        backend: &B,
        round: &GoodRound<'_>,
        report: &SyncReport<B::Rendered>,
        again: bool,
        elapsed: Duration,
    ) {
        self.metrics.rules(&report.counts);
        self.metrics.settled(&report.settled);
        self.metrics.synced(round.desired, backend.families());
        self.desk.succeeded(backend, round);
        let (backend, services) = (backend.name(), round.desired.service_ports());
        if !self.synced.send_replace(true) {
            info!(backend, services, ?elapsed, "Programmed all Services");
        } else if round.repaired {
            let rules: usize = report.counts.iter().map(|count| count.written).sum();
            warn!(
                backend,
                rules,
                ?elapsed,
                "Repaired what somebody else had changed"
            );
        } else if again {
            info!(backend, services, ?elapsed, "Can program Services again");
        } else {
            let (changed, full) = (report.changed, report.found.is_some());
            debug!(backend, services, changed, full, ?elapsed, "Synced");
        }
    }

    /// These families have something to write.
    pub(super) fn queue(&self, families: impl Iterator<Item = Family>) {
        for family in families {
            self.health.queued(health::services(family), Instant::now());
        }
    }

    /// A family in which all went well is as fresh as if all had.
    fn ended(&self, full: bool, took: Duration, families: &[Family], failed: Option<&SyncError>) {
        let wanted_change = failed.is_some_and(|failed| failed.wanted_change);
        let failed: Vec<Family> = match failed.map(|failed| failed.error.family()) {
            None => Vec::new(),
            Some(Some(only)) => vec![only],
            Some(None) => families.to_vec(),
        };
        if wanted_change {
            self.queue(failed.iter().copied());
        }
        for &family in families.iter().filter(|family| !failed.contains(family)) {
            self.health.updated(health::services(family));
        }
        self.metrics.sync_ended(&Round {
            full,
            took,
            families,
            failed: &failed,
        });
    }

    fn tell_load_balancers(&self, wanted: impl FnOnce(&Wanted) -> Wanted) {
        self.health_checks.send_if_modified(|known| {
            let wanted = wanted(known);
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
    }

    /// Brings the desired state up to what is known now. Gives what load balancers may be told
    /// when that is in the kernel.
    fn compile<B: Backend>(&self, backend: &B, rounds: &mut Rounds<B::Rendered>) -> Wanted {
        let node = node::of(&self.node_name, self.feed.node(), &self.config);
        let mut skipped = {
            let mut model = self.feed.model();
            rounds.compiler.update(&mut model, &node);
            rounds.compiler.skipped(&model)
        };
        let desired = rounds.compiler.desired();
        let unsupported = backend.unsupported(desired);
        let wanted = Wanted::of(desired, backend.families(), &unsupported);
        skipped.extend(unsupported);
        let skipped = rounds.skips.report(skipped);
        rounds.skipped = skipped;
        self.metrics
            .skipped
            .set(i64::try_from(skipped).unwrap_or(i64::MAX));
        wanted
    }
}

/// Failures are loud at first and when they last; retries in between are not.
fn log_failure(backend: &'static str, failure: &BackendError, failures: u32, outage: &mut Outage) {
    let error = Chain(failure);
    if !outage.is_news(&error.to_string()) {
        debug!(backend, %error, failures, "Still cannot program Services");
    } else if failure.retry() == Retry::Never {
        error!(backend, %error, "Cannot program Services, an operator must act");
    } else {
        warn!(backend, %error, failures, "Cannot program Services, trying again");
    }
}
