//! What is measured of others' changes to what is ours.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriftMetrics {
    repaired: Counter,
    looks: Counter,
}

impl DriftMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "service_proxy_drift_repaired",
            "Times that somebody else's changes to what is ours were found and undone",
            self.repaired.clone(),
        );
        registry.register(
            "service_proxy_drift_looks",
            "Times that the kernel was read back because somebody else had changed something",
            self.looks.clone(),
        );
    }

    /// A sync ended well; `asked`: it was to look for others' changes.
    pub(crate) fn looked(&self, asked: bool, repaired: bool) {
        self.looks.inc_by(u64::from(asked));
        self.repaired.inc_by(u64::from(repaired));
    }
}
