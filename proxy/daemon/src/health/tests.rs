use std::sync::Arc;

use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::config::ServiceProxy;
use crate::metrics::Metrics;

const V4: &str = "IPv4";
const V6: &str = "IPv6";
const TIMEOUT: Duration = Duration::from_mins(1);

fn codes(health: &Health, now: Instant) -> (bool, bool) {
    (health.healthz(now).0, health.livez(now).0)
}

fn eligible() -> (Health, Instant) {
    let health = Health::new(TIMEOUT);
    health.set_node_eligible(true);
    (health, Instant::now())
}

#[test]
fn nothing_to_write_is_healthy_for_ever() {
    let (health, start) = eligible();
    assert_eq!(codes(&health, start + TIMEOUT * 100), (true, true));
    health.updated(V4);
    assert_eq!(codes(&health, start + TIMEOUT * 100), (true, true));
    // For who reads the body, too: it is as good as just written.
    for report in [health.healthz(start).1, health.livez(start).1] {
        assert_eq!(report.last_updated, report.current_time);
    }
}

#[test]
fn the_family_that_fails_is_named() {
    let (health, start) = eligible();
    for family in [V4, V6] {
        health.queued(family, start);
    }
    health.updated(V4);
    assert_eq!(codes(&health, start + TIMEOUT / 2), (true, true));
    assert!(health.services_healthy(start + TIMEOUT / 2));
    assert_eq!(codes(&health, start + TIMEOUT), (false, false));
    assert!(!health.services_healthy(start + TIMEOUT));
    for report in [
        health.healthz(start + TIMEOUT).1,
        health.livez(start + TIMEOUT).1,
    ] {
        let body = serde_json::to_value(report).unwrap();
        assert_eq!(body["healthy"], false);
        assert_eq!(body["status"]["IPv4"]["healthy"], true);
        assert_eq!(body["status"]["IPv6"]["healthy"], false);
        // The newest of both.
        assert_eq!(body["lastUpdated"], body["status"]["IPv4"]["lastUpdated"]);
    }
}

#[test]
fn the_oldest_waiting_change_decides() {
    let (health, start) = eligible();
    health.queued(V4, start);
    health.queued(V4, start + TIMEOUT / 2);
    assert_eq!(codes(&health, start + TIMEOUT / 2), (true, true));
    assert_eq!(codes(&health, start + TIMEOUT), (false, false));
    health.updated(V4);
    assert_eq!(codes(&health, start + TIMEOUT), (true, true));
}

#[test]
fn every_part_counts_for_healthz_and_services_alone_are_a_reason_for_a_restart() {
    let (health, start) = eligible();
    health.queued(V4, start);
    health.queued(POD_NETWORK, start);
    health.updated(V4);
    assert_eq!(codes(&health, start + TIMEOUT), (false, true));
    let body = serde_json::to_value(health.livez(start + TIMEOUT).1).unwrap();
    assert_eq!(body["status"]["IPv4"]["healthy"], true);
    assert_eq!(body["status"].get(POD_NETWORK), None);
    health.updated(POD_NETWORK);
    assert_eq!(codes(&health, start + TIMEOUT), (true, true));
    health.queued(V4, start);
    assert_eq!(codes(&health, start + TIMEOUT), (false, false));
}

#[test]
fn what_was_written_but_for_something_is_healthy_and_not_done() {
    let (health, start) = eligible();
    health.queued(POD_NETWORK, start);
    health.partly_updated(POD_NETWORK);
    assert_eq!(codes(&health, start + TIMEOUT), (true, true));
    assert!(!health.part(POD_NETWORK).unwrap().done);
    // It is tried again, and has all of its time.
    health.queued(POD_NETWORK, start + TIMEOUT);
    assert_eq!(codes(&health, start + TIMEOUT * 3 / 2), (true, true));
    assert_eq!(codes(&health, start + TIMEOUT * 2), (false, true));
    health.updated(POD_NETWORK);
    assert!(health.part(POD_NETWORK).unwrap().done);
}

#[test]
fn a_conf_that_cannot_be_written_is_unhealthy_and_no_reason_for_a_restart() {
    let (health, start) = eligible();
    health.queued(CNI_CONF, start);
    health.updated(POD_NETWORK);
    assert_eq!(codes(&health, start + TIMEOUT / 2), (true, true));
    assert_eq!(codes(&health, start + TIMEOUT), (false, true));
    let body = serde_json::to_value(health.healthz(start + TIMEOUT).1).unwrap();
    assert_eq!(body["status"][CNI_CONF]["healthy"], false);
    health.updated(CNI_CONF);
    assert_eq!(codes(&health, start + TIMEOUT), (true, true));
}

#[test]
fn an_ineligible_node_concerns_healthz_alone() {
    let (health, now) = eligible();
    health.set_node_eligible(false);
    assert_eq!(codes(&health, now), (false, true));
    let body = serde_json::to_value(health.healthz(now).1).unwrap();
    assert_eq!(body["healthy"], true);
    assert_eq!(body["nodeEligible"], false);
}

/// Status line and headers, and the body.
async fn get(addr: std::net::SocketAddr, path: &str) -> (String, String) {
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn only_a_kernel_without_ipv6_is_listened_on_in_ipv4_alone() {
    use nix::errno::Errno;

    for (errno, expect) in [
        (Errno::EAFNOSUPPORT, true),
        (Errno::EADDRNOTAVAIL, true),
        // Whoever has [::]:10256 would have half of our probes.
        (Errno::EADDRINUSE, false),
        (Errno::EACCES, false),
    ] {
        let error = std::io::Error::from(errno);
        assert_eq!(server::lacks_ipv6(&error), expect, "{errno}");
    }
}

#[tokio::test]
async fn the_mode_is_told_as_plain_text() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut router = axum::Router::new();
    let modes = [ServiceProxy::Ebpf, ServiceProxy::Iptables];
    for mode in modes {
        let metrics = crate::metrics::router(Registry::default(), mode);
        router = router.nest(&format!("/{}", mode.as_str()), metrics);
    }
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await });
    for mode in ["ebpf", "iptables"] {
        let (head, body) = get(addr, &format!("/{mode}/proxyMode")).await;
        assert_eq!(body, mode);
        assert!(
            head.contains("content-type: text/plain; charset=utf-8"),
            "{head}"
        );
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    }
}

#[tokio::test]
async fn over_http() {
    let health = Arc::new(Health::new(TIMEOUT));
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, ServiceProxy::Ebpf);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = server::router(health.clone(), metrics)
        .nest("/m", crate::metrics::router(registry, ServiceProxy::Ebpf));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await });

    health.updated(V4);
    let (head, body) = get(addr, "/healthz").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["nodeEligible"], false);
    assert_eq!(body["status"]["IPv4"]["healthy"], true);
    assert!(body["lastUpdated"].as_str().unwrap().ends_with('Z'));

    let (head, body) = get(addr, "/livez").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body.get("nodeEligible"), None);
    assert_eq!(body["healthy"], true);
    assert_eq!(body["lastUpdated"], body["currentTime"]);

    assert!(get(addr, "/").await.0.starts_with("http/1.1 404"));
    let (head, body) = get(addr, "/m/metrics").await;
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(
        body.contains("kubeproxy_proxy_healthz_total{code=\"503\"} 1"),
        "{body}"
    );
}
