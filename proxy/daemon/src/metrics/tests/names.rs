//! All names at once, as Prometheus stores them: none is missing, and none is there that is not
//! in one of these lists.

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use seaway_podnet::Desired;

use super::*;
use crate::upkeep;

/// kube-proxy's own, in every mode.
const KUBE_PROXY: [(&str, &str); 13] = [
    ("kubeproxy_network_programming_duration_seconds", HISTOGRAM),
    ("kubeproxy_proxy_healthz_total", COUNTER),
    ("kubeproxy_proxy_livez_total", COUNTER),
    (
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        HISTOGRAM,
    ),
    (
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        HISTOGRAM,
    ),
    ("kubeproxy_sync_proxy_rules_duration_seconds", HISTOGRAM),
    ("kubeproxy_sync_proxy_rules_endpoint_changes_pending", GAUGE),
    ("kubeproxy_sync_proxy_rules_endpoint_changes_total", COUNTER),
    (
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
        GAUGE,
    ),
    ("kubeproxy_sync_proxy_rules_last_timestamp_seconds", GAUGE),
    ("kubeproxy_sync_proxy_rules_no_local_endpoints_total", GAUGE),
    ("kubeproxy_sync_proxy_rules_service_changes_pending", GAUGE),
    ("kubeproxy_sync_proxy_rules_service_changes_total", COUNTER),
];

/// Its own with iptables.
const WITH_IPTABLES: [(&str, &str); 6] = [
    (
        "kubeproxy_conntrack_reconciler_deleted_entries_total",
        COUNTER,
    ),
    (
        "kubeproxy_conntrack_reconciler_sync_duration_seconds",
        HISTOGRAM,
    ),
    ("kubeproxy_sync_proxy_rules_iptables_last", GAUGE),
    (
        "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
        COUNTER,
    ),
    (
        "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
        COUNTER,
    ),
    ("kubeproxy_sync_proxy_rules_iptables_total", GAUGE),
];

/// What kube-proxy has from its libraries, and dashboards show.
const OF_LIBRARIES: [(&str, &str); 8] = [
    ("process_cpu_seconds_total", COUNTER),
    ("process_max_fds", GAUGE),
    ("process_open_fds", GAUGE),
    ("process_resident_memory_bytes", GAUGE),
    ("process_start_time_seconds", GAUGE),
    ("process_virtual_memory_bytes", GAUGE),
    ("rest_client_request_duration_seconds", HISTOGRAM),
    ("rest_client_requests_total", COUNTER),
];

/// Nobody else's.
const OURS: [(&str, &str); 15] = [
    ("seaway_cni_repairs_total", COUNTER),
    ("seaway_cni_swept_total", COUNTER),
    ("seaway_cni_upkeep_failures_total", COUNTER),
    ("seaway_pod_network_foreign_conf_first", GAUGE),
    ("seaway_pod_network_foreign_confs", GAUGE),
    ("seaway_pod_network_foreign_drop_chains", GAUGE),
    ("seaway_pod_network_peer_routes", GAUGE),
    ("seaway_pod_network_probe_failures_total", COUNTER),
    ("seaway_pod_network_repairs_total", COUNTER),
    ("seaway_pod_network_skipped_peers", GAUGE),
    ("seaway_pod_network_sync_failures_total", COUNTER),
    ("seaway_service_proxy_drift_looks_total", COUNTER),
    ("seaway_service_proxy_drift_repaired_total", COUNTER),
    ("seaway_service_proxy_skipped", GAUGE),
    ("seaway_service_proxy_sync_failures_total", COUNTER),
];

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

const NFACCT: &str = "counted by a rule in the way of every packet, and absent without nfacct";
const NO_NFTABLES: &str = "of a mode that there is not: iptables serves what asks for nftables";
const NO_GO: &str = "of Go's runtime or of its libraries";
const NOT_SHOWN: &str = "no usual dashboard shows it";

/// What kube-proxy has besides, by how it begins, and why it is absent.
const ABSENT: [(&str, &str); 16] = [
    (
        "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
        NFACCT,
    ),
    (
        "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        NFACCT,
    ),
    (
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
        NO_NFTABLES,
    ),
    (
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
        NO_NFTABLES,
    ),
    ("go_", NO_GO),
    ("kubernetes_", "of Kubernetes' own versions and gates"),
    ("process_network_", NOT_SHOWN),
    ("process_virtual_memory_max_bytes", NOT_SHOWN),
    ("registered_metrics_total", NO_GO),
    ("rest_client_dns_resolution_duration_seconds", NOT_SHOWN),
    ("rest_client_exec_plugin_", NO_GO),
    ("rest_client_rate_limiter_", "no rate is limited here"),
    (
        "rest_client_request_retries_total",
        "each try is in rest_client_requests_total",
    ),
    ("rest_client_request_size_bytes", NOT_SHOWN),
    ("rest_client_response_size_bytes", NOT_SHOWN),
    ("rest_client_transport_", NO_GO),
];

/// Everything that the daemon registers, each with something to tell: what never happened has
/// no line.
fn busy(mode: ServiceProxy) -> Registry {
    let (metrics, mut registry) = of(mode);
    let requests = ApiRequests::default();
    requests.register(&mut registry);
    let server = requests.to("10.96.0.1:443");
    server.tried(&Method::GET, Some(StatusCode::OK));
    drop(server.begins(&Method::GET));
    let upkeep = upkeep::Metrics::register(&mut registry);
    upkeep.repaired("routes");
    upkeep.swept("records", 1);
    upkeep.failed("repair");
    metrics.pod_network.wanted(&Desired::default());
    metrics.healthz_answered(200);
    metrics.livez_answered(200);
    metrics.sync_queued();
    metrics.sync_ended(&round(true, &[]));
    metrics.sync_ended(&round(false, &[]));
    metrics.synced(&DesiredState::default(), BOTH);
    metrics.programmed(Family::V4, Timestamp::now());
    metrics.rules(&[RuleCount {
        family: Family::V4,
        table: "nat",
        total: 1,
        written: 1,
    }]);
    metrics.settled(&[Settled {
        family: Family::V4,
        took: Duration::from_millis(1),
        removed: 0,
    }]);
    registry
}

/// By name, with the kind. Those of counters have an ending that is not said here.
fn exported(registry: &Registry) -> BTreeSet<(String, String)> {
    let text = text(registry);
    let lines = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    let words = lines.map(|line| line.split_once(' ').unwrap());
    let stored = |(name, kind): (&str, &str)| {
        let ending = if kind == COUNTER { "_total" } else { "" };
        (format!("{name}{ending}"), kind.to_owned())
    };
    words.map(stored).collect()
}

fn listed(lists: &[&[(&str, &str)]]) -> BTreeSet<(String, String)> {
    let all = lists.iter().copied().flatten();
    let mut listed = BTreeSet::new();
    for &(name, kind) in all {
        let new = listed.insert((name.to_owned(), kind.to_owned()));
        assert!(new, "{name} is listed twice");
    }
    listed
}

#[track_caller]
fn is_closed(mode: ServiceProxy, lists: &[&[(&str, &str)]]) {
    let (have, want) = (exported(&busy(mode)), listed(lists));
    let missing: Vec<_> = want.difference(&have).collect();
    let others: Vec<_> = have.difference(&want).collect();
    assert!(
        missing.is_empty() && others.is_empty(),
        "{mode:?} lacks {missing:#?} and has {others:#?}"
    );
}

#[test]
fn every_name_and_kind_is_kube_proxys_or_ours_and_none_is_missing() {
    let lists: [&[_]; 4] = [&KUBE_PROXY, &OF_LIBRARIES, &OURS, &WITH_IPTABLES];
    is_closed(ServiceProxy::Iptables, &lists);
    is_closed(ServiceProxy::Ebpf, &lists[..3]);
}

#[test]
fn what_is_said_to_be_absent_is() {
    for (name, kind) in exported(&busy(ServiceProxy::Iptables)) {
        let absent = ABSENT.iter().find(|(absent, _)| name.starts_with(absent));
        assert!(absent.is_none(), "{kind} {name}: {absent:?}");
    }
}

#[test]
fn samples_have_the_names_that_are_listed() {
    let text = text(&busy(ServiceProxy::Iptables));
    let lists: [&[_]; 4] = [&KUBE_PROXY, &OF_LIBRARIES, &OURS, &WITH_IPTABLES];
    for &(name, kind) in lists.iter().copied().flatten() {
        let ending = if kind == HISTOGRAM { "_count" } else { "" };
        let mut samples = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(ending)?;
            rest.starts_with(['{', ' ']).then_some(rest)
        });
        assert!(samples.next().is_some(), "no {name}{ending} in\n{text}");
    }
}
