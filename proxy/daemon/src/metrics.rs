//! What is measured, under kube-proxy's names where it means the same.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::config::ServiceProxy;

#[cfg(test)]
mod tests;

type Seconds = Gauge<f64, AtomicU64>;

/// Everything that the daemon counts. Handles are shared, so clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    sync_duration: Histogram,
    sync_last: Seconds,
    sync_queued: Seconds,
    sync_failures: Counter,
    restore_failures: Counter,
    pub(crate) endpoint_changes: Changes,
    pub(crate) service_changes: Changes,
    healthz: Family<Code, Counter>,
    livez: Family<Code, Counter>,
    pub(crate) skipped: Gauge,
    pub(crate) peer_routes: Gauge,
    pub(crate) skipped_peers: Gauge,
    pub(crate) pod_network_failures: Counter,
}

/// Changes that came from the API server, and those not in the kernel yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    total: Counter,
    pending: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Changes {
    /// One more change has come.
    pub(crate) fn arrived(&self) {
        self.total.inc();
        self.pending.inc();
    }

    /// How many wait; to be handed to [`applied`](Self::applied) after a sync that covers them.
    pub(crate) fn pending(&self) -> i64 {
        self.pending.get()
    }

    /// `count` of the waiting ones are in the kernel.
    pub(crate) fn applied(&self, count: i64) {
        self.pending.dec_by(count);
    }

    fn register(&self, registry: &mut Registry, of: &str) {
        registry.register(
            format!("sync_proxy_rules_{of}_changes"),
            "Changes seen since start",
            self.total.clone(),
        );
        registry.register(
            format!("sync_proxy_rules_{of}_changes_pending"),
            "Changes that are not in the kernel yet",
            self.pending.clone(),
        );
    }
}

impl Metrics {
    /// Creates the metrics and registers them; `mode` says which backend's apply.
    pub(crate) fn register(registry: &mut Registry, mode: ServiceProxy) -> Self {
        let metrics = Self {
            sync_duration: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            sync_last: Seconds::default(),
            sync_queued: Seconds::default(),
            sync_failures: Counter::default(),
            restore_failures: Counter::default(),
            endpoint_changes: Changes::default(),
            service_changes: Changes::default(),
            healthz: Family::default(),
            livez: Family::default(),
            skipped: Gauge::default(),
            peer_routes: Gauge::default(),
            skipped_peers: Gauge::default(),
            pod_network_failures: Counter::default(),
        };
        metrics.register_as_kube_proxy(registry.sub_registry_with_prefix("kubeproxy"), mode);
        metrics.register_own(registry.sub_registry_with_prefix("seaway"));
        metrics
    }

    fn register_as_kube_proxy(&self, registry: &mut Registry, mode: ServiceProxy) {
        self.endpoint_changes.register(registry, "endpoint");
        self.service_changes.register(registry, "service");
        registry.register("proxy_healthz", "Answers of /healthz", self.healthz.clone());
        registry.register("proxy_livez", "Answers of /livez", self.livez.clone());
        let by_family = registry.sub_registry_with_label(("ip_family".into(), "IPv4".into()));
        by_family.register_with_unit(
            "sync_proxy_rules_duration",
            "Duration of each sync, successful or not",
            Unit::Seconds,
            self.sync_duration.clone(),
        );
        by_family.register_with_unit(
            "sync_proxy_rules_last_timestamp",
            "When the last successful sync ended",
            Unit::Seconds,
            self.sync_last.clone(),
        );
        by_family.register_with_unit(
            "sync_proxy_rules_last_queued_timestamp",
            "When a sync was last asked for",
            Unit::Seconds,
            self.sync_queued.clone(),
        );
        if mode == ServiceProxy::Iptables {
            by_family.register(
                "sync_proxy_rules_iptables_restore_failures",
                "Syncs that failed",
                self.restore_failures.clone(),
            );
        }
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register(
            "service_proxy_sync_failures",
            "Syncs that failed",
            self.sync_failures.clone(),
        );
        registry.register(
            "service_proxy_skipped",
            "Objects or fields that are not programmed",
            self.skipped.clone(),
        );
        registry.register(
            "pod_network_peer_routes",
            "Routes to other nodes' podCIDRs",
            self.peer_routes.clone(),
        );
        registry.register(
            "pod_network_skipped_peers",
            "Nodes, or podCIDRs of nodes, that got no route",
            self.skipped_peers.clone(),
        );
        registry.register(
            "pod_network_sync_failures",
            "Rounds in which something of the pod network could not be programmed",
            self.pod_network_failures.clone(),
        );
    }

    /// A sync was asked for.
    pub(crate) fn sync_queued(&self) {
        self.sync_queued.set(unix_now());
    }

    /// A sync ended.
    pub(crate) fn sync_ended(&self, took: Duration, success: bool) {
        self.sync_duration.observe(took.as_secs_f64());
        if success {
            self.sync_last.set(unix_now());
        } else {
            self.sync_failures.inc();
            self.restore_failures.inc();
        }
    }

    pub(crate) fn healthz_answered(&self, code: u16) {
        self.healthz.get_or_create(&Code { code }).inc();
    }

    pub(crate) fn livez_answered(&self, code: u16) {
        self.livez.get_or_create(&Code { code }).inc();
    }
}

/// kube-proxy's metrics server: `/metrics`, `/proxyMode`, and a `/healthz` that is always ok.
pub(crate) fn router(registry: Registry, mode: ServiceProxy) -> Router {
    let registry = std::sync::Arc::new(registry);
    let metrics = move || {
        let mut text = String::new();
        // Writing to a String cannot fail, so an error is one of a metric's own encoder.
        let answer = match encode(&mut text, &registry) {
            Ok(()) => Ok(([(CONTENT_TYPE, OPEN_METRICS)], text)),
            Err(e) => Err((axum::http::StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
        };
        std::future::ready(answer)
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/proxyMode", get(move || std::future::ready(mode.as_str())))
        .route("/healthz", get(|| std::future::ready("ok")))
}

/// Content type of the OpenMetrics text format 1.0.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}
