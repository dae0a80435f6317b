//! What is measured of the sync loop, by family, under kube-proxy's names.
//!
//! A family that is not served has no lines, so that nobody is alarmed by its silence.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Labelled;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use seaway_proxy_core::backend::{RuleCount, Settled};
use seaway_proxy_core::desired::{DesiredState, Family, FrontendKind, ServicePort, TrafficPolicy};

use super::{Seconds, unix_now};
use crate::config::ServiceProxy;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    ip_family: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableOf {
    table: &'static str,
    ip_family: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyOf {
    traffic_policy: &'static str,
    ip_family: String,
}

type Durations = Labelled<Of, Histogram, fn() -> Histogram>;

/// A round of the sync loop.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    /// Whether the kernel was read back.
    pub(crate) full: bool,
    pub(crate) took: Duration,
    pub(crate) families: &'a [Family],
    /// Those that are not as desired.
    pub(crate) failed: &'a [Family],
}

#[derive(Clone)]
pub(super) struct SyncMetrics {
    duration: Durations,
    full: Durations,
    partial: Durations,
    last: Labelled<Of, Seconds>,
    queued: Labelled<Of, Seconds>,
    programming: Durations,
    no_local_endpoints: Labelled<PolicyOf, Gauge>,
    rules: Labelled<TableOf, Gauge>,
    rules_last: Labelled<TableOf, Gauge>,
    restore_failures: Labelled<Of, Counter>,
    partial_restore_failures: Labelled<Of, Counter>,
    conntrack: Durations,
    conntrack_deleted: Labelled<Of, Counter>,
}

fn of(family: Family) -> Of {
    let ip_family = family.to_string();
    Of { ip_family }
}

fn sync_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn programming_buckets() -> Histogram {
    let whole = |from, to, step| (from..=to).step_by(step).map(f64::from);
    let buckets = [0.25, 0.5].into_iter().chain(whole(1, 59, 1));
    Histogram::new(buckets.chain(whole(60, 115, 5)).chain(whole(120, 300, 30)))
}

impl SyncMetrics {
    pub(super) fn new() -> Self {
        let durations = || Durations::new_with_constructor(sync_buckets);
        Self {
            duration: durations(),
            full: durations(),
            partial: durations(),
            last: Labelled::default(),
            queued: Labelled::default(),
            programming: Durations::new_with_constructor(programming_buckets),
            no_local_endpoints: Labelled::default(),
            rules: Labelled::default(),
            rules_last: Labelled::default(),
            restore_failures: Labelled::default(),
            partial_restore_failures: Labelled::default(),
            conntrack: durations(),
            conntrack_deleted: Labelled::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry, mode: ServiceProxy) {
        for (name, help, metric) in [
            (
                "sync_proxy_rules",
                "Duration of each sync, successful or not",
                &self.duration,
            ),
            (
                "sync_full_proxy_rules",
                "Of those that read the kernel back",
                &self.full,
            ),
            (
                "sync_partial_proxy_rules",
                "Of those that do not",
                &self.partial,
            ),
            (
                "network_programming",
                "From an EndpointSlice's trigger to the kernel",
                &self.programming,
            ),
        ] {
            let name = format!("{name}_duration");
            registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
        }
        for (name, help, metric) in [
            ("last", "When the last successful sync ended", &self.last),
            (
                "last_queued",
                "When a sync was last asked for",
                &self.queued,
            ),
        ] {
            let name = format!("sync_proxy_rules_{name}_timestamp");
            registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
        }
        registry.register(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports with policy Local and no endpoint on this node, but elsewhere",
            self.no_local_endpoints.clone(),
        );
        if mode == ServiceProxy::Iptables {
            self.register_iptables(registry);
            self.register_conntrack(registry);
        }
    }

    fn register_iptables(&self, registry: &mut Registry) {
        for (name, help, metric) in [
            ("total", "Rules of ours", &self.rules),
            (
                "last",
                "Rules that the last sync with a change has written",
                &self.rules_last,
            ),
        ] {
            let name = format!("sync_proxy_rules_iptables_{name}");
            registry.register(name, help, metric.clone());
        }
        for (name, help, metric) in [
            ("restore", "Syncs that failed", &self.restore_failures),
            (
                "partial_restore",
                "Of those, which had not read the kernel back; one that does follows",
                &self.partial_restore_failures,
            ),
        ] {
            let name = format!("sync_proxy_rules_iptables_{name}_failures");
            registry.register(name, help, metric.clone());
        }
    }

    fn register_conntrack(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "conntrack_reconciler_sync_duration",
            "Duration of each removal of flows that lead nowhere any more",
            Unit::Seconds,
            self.conntrack.clone(),
        );
        registry.register(
            "conntrack_reconciler_deleted_entries",
            "Flows that were removed because they lead nowhere any more",
            self.conntrack_deleted.clone(),
        );
    }

    pub(super) fn settled(&self, settled: &[Settled]) {
        for one in settled {
            let labels = of(one.family);
            let took = one.took.as_secs_f64();
            self.conntrack.get_or_create(&labels).observe(took);
            let deleted = self.conntrack_deleted.get_or_create_owned(&labels);
            deleted.inc_by(u64::try_from(one.removed).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn queued(&self, families: &[Family]) {
        for &family in families {
            self.queued.get_or_create(&of(family)).set(unix_now());
        }
    }

    pub(super) fn ended(&self, round: &Round) {
        let kind = if round.full {
            &self.full
        } else {
            &self.partial
        };
        for &family in round.families {
            let labels = of(family);
            let took = round.took.as_secs_f64();
            self.duration.get_or_create(&labels).observe(took);
            kind.get_or_create(&labels).observe(took);
            // There from the beginning, for who looks at growth.
            let failures = self.restore_failures.get_or_create_owned(&labels);
            let partial = self.partial_restore_failures.get_or_create_owned(&labels);
            if !round.failed.contains(&family) {
                self.last.get_or_create(&labels).set(unix_now());
                continue;
            }
            failures.inc();
            partial.inc_by(u64::from(!round.full));
        }
    }

    pub(super) fn rules(&self, counts: &[RuleCount]) {
        for count in counts {
            let labels = TableOf {
                table: count.table,
                ip_family: count.family.to_string(),
            };
            let set = |to: &Labelled<TableOf, Gauge>, value| {
                to.get_or_create(&labels)
                    .set(i64::try_from(value).unwrap_or(i64::MAX))
            };
            set(&self.rules, count.total);
            set(&self.rules_last, count.written);
        }
    }

    pub(super) fn no_local_endpoints(&self, desired: &DesiredState, families: &[Family]) {
        for &family in families {
            let (mut internal, mut external) = (0, 0);
            for port in desired.family(family).services.values() {
                let lacks = lacks_local_endpoints(port);
                internal += i64::from(lacks[0]);
                external += i64::from(lacks[1]);
            }
            for (traffic_policy, value) in [("internal", internal), ("external", external)] {
                let ip_family = family.to_string();
                let labels = PolicyOf {
                    traffic_policy,
                    ip_family,
                };
                self.no_local_endpoints.get_or_create(&labels).set(value);
            }
        }
    }

    pub(super) fn programmed(&self, family: Family, trigger: Timestamp) {
        let took = Timestamp::now().duration_since(trigger).as_secs_f64();
        self.programming
            .get_or_create(&of(family))
            .observe(took.max(0.0));
    }
}

/// For inside and outside: whether policy Local leaves clients without an answer that
/// another node would have.
fn lacks_local_endpoints(port: &ServicePort) -> [bool; 2] {
    let lacks = port.local.is_empty() && !port.cluster.is_empty();
    let used = |policy, inside| {
        let mut frontends = port.frontends.iter();
        let asked = frontends.any(|f| (f.kind == FrontendKind::ClusterIp) == inside);
        lacks && policy == TrafficPolicy::Local && asked
    };
    [used(port.internal, true), used(port.external, false)]
}
