#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use seaway_proxy_core::desired::{
    Endpoint, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName, TrafficPolicy,
};

use super::*;

mod names;

const BOTH: &[Family] = &Family::ALL;

fn of(mode: ServiceProxy) -> (Metrics, Registry) {
    let mut registry = Registry::default();
    (Metrics::register(&mut registry, mode), registry)
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[track_caller]
fn has(registry: &Registry, lines: &[&str]) {
    let text = text(registry);
    for line in lines {
        let there = text.lines().any(|l| l.starts_with(line));
        assert!(there, "no {line:?} in\n{text}");
    }
}

fn round(full: bool, failed: &'static [Family]) -> Round<'static> {
    Round {
        full,
        took: Duration::from_millis(3),
        families: BOTH,
        failed,
    }
}

#[test]
fn names_are_kube_proxys() {
    let (metrics, registry) = of(ServiceProxy::Iptables);
    metrics.endpoint_changes.arrived();
    metrics.endpoint_changes.arrived();
    metrics.endpoint_changes.applied(1);
    metrics.service_changes.arrived();
    metrics.sync_queued();
    metrics.healthz_answered(503);
    metrics.livez_answered(200);
    has(
        &registry,
        &[
            "kubeproxy_sync_proxy_rules_endpoint_changes_total 2",
            "kubeproxy_sync_proxy_rules_endpoint_changes_pending 1",
            "kubeproxy_sync_proxy_rules_service_changes_total 1",
            "kubeproxy_sync_proxy_rules_service_changes_pending 1",
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1",
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"} 1",
            "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
            "kubeproxy_proxy_livez_total{code=\"200\"} 1",
        ],
    );
}

#[test]
fn rounds_are_measured_by_kind_and_family() {
    let (metrics, registry) = of(ServiceProxy::Iptables);
    metrics.sync_ended(&round(true, &[]));
    metrics.sync_ended(&round(false, &[]));
    metrics.sync_ended(&round(false, &[Family::V6]));
    metrics.sync_ended(&round(true, BOTH));
    has(
        &registry,
        &[
            "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 4",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 2",
            "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 2",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\",ip_family=\"IPv4\"} 4",
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1",
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"} 1",
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv6\"} 2",
            "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family=\"IPv4\"} 0",
            "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family=\"IPv6\"} 1",
            "seaway_service_proxy_sync_failures_total 2",
        ],
    );
}

#[test]
fn a_round_that_failed_is_no_last_one() {
    let (metrics, registry) = of(ServiceProxy::Iptables);
    metrics.sync_ended(&round(true, &[Family::V6]));
    let name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
    let text = text(&registry);
    assert!(
        text.contains(&format!("{name}{{ip_family=\"IPv4\"}}")),
        "{text}"
    );
    assert!(
        !text.contains(&format!("{name}{{ip_family=\"IPv6\"}}")),
        "{text}"
    );
}

#[test]
fn rules_are_told_by_table() {
    let (metrics, registry) = of(ServiceProxy::Iptables);
    let count = |family, table, total, written| RuleCount {
        family,
        table,
        total,
        written,
    };
    metrics.rules(&[count(Family::V4, "nat", 100, 90)]);
    metrics.rules(&[
        count(Family::V4, "nat", 101, 3),
        count(Family::V6, "filter", 7, 7),
    ]);
    has(
        &registry,
        &[
            "kubeproxy_sync_proxy_rules_iptables_total{table=\"nat\",ip_family=\"IPv4\"} 101",
            "kubeproxy_sync_proxy_rules_iptables_last{table=\"nat\",ip_family=\"IPv4\"} 3",
            "kubeproxy_sync_proxy_rules_iptables_total{table=\"filter\",ip_family=\"IPv6\"} 7",
        ],
    );
}

#[test]
fn removed_flows_are_counted_by_family() {
    let (metrics, registry) = of(ServiceProxy::Iptables);
    for (family, removed) in [(Family::V4, 3), (Family::V4, 0), (Family::V6, 1)] {
        let took = Duration::from_millis(3);
        metrics.settled(&[Settled {
            family,
            took,
            removed,
        }]);
    }
    has(
        &registry,
        &[
            "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"} 3",
            "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"} 1",
            "kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv4\"} 2",
        ],
    );
}

#[test]
fn what_came_about_is_measured_until_it_is_in_the_kernel() {
    let (metrics, registry) = of(ServiceProxy::Ebpf);
    let ago = |seconds| Timestamp::now() - Duration::from_secs(seconds);
    metrics.programmed(Family::V4, ago(7));
    metrics.programmed(Family::V4, ago(200));
    // The controller's clock may be ahead of ours.
    metrics.programmed(Family::V4, Timestamp::now() + Duration::from_secs(9));
    let bucket = |le| {
        format!(
            "kubeproxy_network_programming_duration_seconds_bucket{{le=\"{le}\",ip_family=\"IPv4\"}}"
        )
    };
    let lines = [
        ("0.25", 1),
        ("7.0", 1),
        ("8.0", 2),
        ("180.0", 2),
        ("210.0", 3),
    ];
    let lines = lines.map(|(le, count)| format!("{} {count}", bucket(le)));
    has(&registry, &lines.each_ref().map(String::as_str));
}

/// A Service port that has endpoints elsewhere, and `local` here.
fn service(internal: TrafficPolicy, external: TrafficPolicy, local: usize) -> ServicePort {
    let frontend = |kind| Frontend {
        addr: "10.96.0.1".parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
        kind,
    };
    let endpoint = Endpoint {
        addr: "10.244.0.5:80".parse().unwrap(),
        local: false,
    };
    ServicePort {
        frontends: vec![
            frontend(FrontendKind::ClusterIp),
            frontend(FrontendKind::NodePort),
        ],
        cluster: vec![endpoint],
        local: vec![endpoint; local],
        internal,
        external,
        ..ServicePort::default()
    }
}

#[test]
fn policies_without_an_endpoint_here_are_counted() {
    use TrafficPolicy::{Cluster, Local};
    let (metrics, registry) = of(ServiceProxy::Iptables);
    let mut desired = DesiredState::default();
    let inside = {
        let mut port = service(Local, Local, 0);
        port.frontends.truncate(1);
        port
    };
    let nobody = ServicePort {
        cluster: Vec::new(),
        ..service(Local, Local, 0)
    };
    let ports = [
        service(Local, Local, 0),
        service(Cluster, Local, 0),
        service(Local, Local, 1),
        service(Cluster, Cluster, 0),
        // The policy is for frontends that it does not have.
        inside,
        // There is none anywhere.
        nobody,
    ];
    for (index, port) in ports.into_iter().enumerate() {
        let name = ServicePortName {
            namespace: "a".to_owned(),
            name: index.to_string(),
            port: String::new(),
        };
        desired.v4.services.insert(name, port);
    }
    metrics.synced(&desired, BOTH);
    let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    let line = |policy, family, count| {
        format!("{name}{{traffic_policy=\"{policy}\",ip_family=\"{family}\"}} {count}")
    };
    let lines = [
        line("internal", "IPv4", 2),
        line("external", "IPv4", 2),
        line("internal", "IPv6", 0),
        line("external", "IPv6", 0),
    ];
    has(&registry, &lines.each_ref().map(String::as_str));
}

#[test]
fn a_mode_has_only_its_own_metrics() {
    let (metrics, registry) = of(ServiceProxy::Ebpf);
    metrics.sync_queued();
    let text = text(&registry);
    assert!(!text.contains("iptables"), "{text}");
    // A family that is not served is not late either.
    assert!(!text.contains("IPv6"), "{text}");
}
