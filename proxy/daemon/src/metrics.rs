//! What is measured, under kube-proxy's names where it means the same.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use axum::routing::get;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Labelled;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use seaway_proxy_core::backend::{RuleCount, Settled};
use seaway_proxy_core::desired::{DesiredState, Family};

use crate::config::ServiceProxy;

mod api_requests;
mod drift;
mod pod_network;
mod process;
mod sync;
#[cfg(test)]
mod tests;

pub(crate) use api_requests::{ApiRequests, ToServer, UnderWay};
use drift::DriftMetrics;
pub(crate) use pod_network::PodNetworkMetrics;
use process::Process;
pub(crate) use sync::Round;
use sync::SyncMetrics;

type Seconds = Gauge<f64, AtomicU64>;

/// Everything that the daemon counts. Handles are shared, so clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    mode: ServiceProxy,
    sync: SyncMetrics,
    sync_failures: Counter,
    pub(crate) endpoint_changes: Changes,
    pub(crate) service_changes: Changes,
    healthz: Labelled<Code, Counter>,
    livez: Labelled<Code, Counter>,
    pub(crate) skipped: Gauge,
    pub(crate) drift: DriftMetrics,
    pub(crate) pod_network: PodNetworkMetrics,
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
            mode,
            sync: SyncMetrics::new(),
            sync_failures: Counter::default(),
            endpoint_changes: Changes::default(),
            service_changes: Changes::default(),
            healthz: Labelled::default(),
            livez: Labelled::default(),
            skipped: Gauge::default(),
            drift: DriftMetrics::default(),
            pod_network: PodNetworkMetrics::default(),
        };
        metrics.register_as_kube_proxy(registry.sub_registry_with_prefix("kubeproxy"), mode);
        metrics.register_own(registry.sub_registry_with_prefix("seaway"));
        registry.register_collector(Box::new(Process));
        metrics
    }

    fn register_as_kube_proxy(&self, registry: &mut Registry, mode: ServiceProxy) {
        self.endpoint_changes.register(registry, "endpoint");
        self.service_changes.register(registry, "service");
        registry.register("proxy_healthz", "Answers of /healthz", self.healthz.clone());
        registry.register("proxy_livez", "Answers of /livez", self.livez.clone());
        self.sync.register(registry, mode);
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
        self.drift.register(registry);
        self.pod_network.register(registry);
    }

    /// A sync was asked for.
    pub(crate) fn sync_queued(&self) {
        // eBPF serves one family.
        let both = self.mode == ServiceProxy::Iptables;
        let families = if both {
            &Family::ALL[..]
        } else {
            &[Family::V4]
        };
        self.sync.queued(families);
    }

    /// A sync of `families` ended; `failed` are those of them in which it did not go well.
    pub(crate) fn sync_ended(&self, round: &Round) {
        self.sync.ended(round);
        if !round.failed.is_empty() {
            self.sync_failures.inc();
        }
    }

    /// All of `desired` is in the kernel now.
    pub(crate) fn synced(&self, desired: &DesiredState, families: &[Family]) {
        self.sync.no_local_endpoints(desired, families);
    }

    /// Rules have been written.
    pub(crate) fn rules(&self, counts: &[RuleCount]) {
        self.sync.rules(counts);
    }

    /// Flows that lead nowhere any more have been looked for.
    pub(crate) fn settled(&self, settled: &[Settled]) {
        self.sync.settled(settled);
    }

    /// What changed at `trigger` is in the kernel now.
    pub(crate) fn programmed(&self, family: Family, trigger: Timestamp) {
        self.sync.programmed(family, trigger);
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
        .route(
            "/proxyMode",
            get(move || std::future::ready(proxy_mode(mode))),
        )
        .route("/healthz", get(|| std::future::ready("ok")))
}

/// As kube-proxy's: the word alone, as plain text.
fn proxy_mode(mode: ServiceProxy) -> impl IntoResponse {
    ([(X_CONTENT_TYPE_OPTIONS, "nosniff")], mode.as_str())
}

/// Content type of the OpenMetrics text format 1.0.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}
