//! What was put back and what was removed.

use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of upkeep; clones count together.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    repairs: Family<What, Counter>,
    swept: Family<What, Counter>,
    failures: Family<Verb, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates the counters and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("seaway");
        registry.register(
            "cni_repairs",
            "Times that something of ours had been removed from the firewall and was put back",
            metrics.repairs.clone(),
        );
        registry.register(
            "cni_swept",
            "Attachments and interfaces of dead pods that were removed",
            metrics.swept.clone(),
        );
        registry.register(
            "cni_upkeep_failures",
            "Calls of the CNI plugin for upkeep that failed",
            metrics.failures.clone(),
        );
        metrics
    }

    pub(crate) fn repaired(&self, what: &'static str) {
        self.repairs.get_or_create(&What { what }).inc();
    }

    pub(crate) fn swept(&self, what: &'static str, count: u64) {
        self.swept.get_or_create(&What { what }).inc_by(count);
    }

    pub(crate) fn failed(&self, verb: &'static str) {
        self.failures.get_or_create(&Verb { verb }).inc();
    }
}
