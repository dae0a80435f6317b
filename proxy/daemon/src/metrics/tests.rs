use super::*;

#[test]
fn names_are_kube_proxys() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, ServiceProxy::Iptables);
    metrics.endpoint_changes.arrived();
    metrics.endpoint_changes.arrived();
    metrics.endpoint_changes.applied(1);
    metrics.service_changes.arrived();
    metrics.sync_queued();
    metrics.sync_ended(Duration::from_millis(3), true);
    metrics.sync_ended(Duration::from_millis(3), false);
    metrics.healthz_answered(503);
    metrics.livez_answered(200);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "kubeproxy_sync_proxy_rules_endpoint_changes_total 2",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending 1",
        "kubeproxy_sync_proxy_rules_service_changes_total 1",
        "kubeproxy_sync_proxy_rules_service_changes_pending 1",
        "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 2",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"} 2",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} ",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} ",
        "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"} 1",
        "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
        "kubeproxy_proxy_livez_total{code=\"200\"} 1",
        "seaway_service_proxy_sync_failures_total 1",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(line)),
            "no {line:?} in\n{text}"
        );
    }
}

#[test]
fn a_mode_has_only_its_own_metrics() {
    let mut registry = Registry::default();
    Metrics::register(&mut registry, ServiceProxy::Ebpf);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(!text.contains("iptables"), "{text}");
}
