//! What is known at once is told at once; where it could be in sync, the kernel is looked at.

use prometheus_client::registry::Registry;
use seaway_proxy_core::backend::Backend as _;

use super::*;
use crate::explain::tests::served;
use crate::service_proxy::tests::{Bench, PATIENCE};

fn server(bench: &Bench) -> Server {
    Server {
        node_name: "a".to_owned(),
        service_proxy: ServiceProxy::Iptables,
        pod_network: None,
        feed: bench.feed.clone(),
        health: Arc::new(Health::new(Duration::from_mins(1))),
        metrics: Metrics::register(&mut Registry::default(), ServiceProxy::Iptables),
        bell: bench.bell.clone(),
    }
}

#[tokio::test]
async fn a_status_is_in_sync_only_while_the_kernel_is_as_it_should_be() {
    // Longer than the test: without the question nothing is read back.
    let mut bench = served(0, Duration::from_hours(1));
    bench.synced().await;
    let server = server(&bench);
    let status = server.status().await;
    assert!(status.in_sync, "{status}");
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    let status = server.status().await;
    assert!(!status.in_sync, "{status}");
    let proxy = status.service_proxy.unwrap();
    assert_eq!(proxy.kernel.agree, Some(false));
    assert_eq!(proxy.unsettled(), None);
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n")
        .await;
    let status = server.status().await;
    assert!(status.in_sync, "{status}");
    assert_eq!(status.service_proxy.unwrap().drift_repaired, 1);
    bench.end().await;
}

#[tokio::test]
async fn with_changes_pending_a_status_waits_for_nobody() {
    let mut bench = served(0, Duration::from_hours(1));
    bench.synced().await;
    let server = server(&bench);
    server.metrics.endpoint_changes.arrived();
    // A loop that was asked would be held where it begins to read.
    let fake = bench.glass.fake.lock().await;
    let status = server.status().await;
    drop(fake);
    assert!(!status.in_sync, "{status}");
    let proxy = status.service_proxy.unwrap();
    assert_eq!(proxy.pending_changes, 1);
    assert_eq!(proxy.kernel, Look::unknown("changes are pending"));
    let age = proxy.sync_age_seconds.unwrap();
    let limit = i64::try_from(PATIENCE.as_secs()).unwrap();
    assert!((0..limit).contains(&age), "{age} s");
    server.metrics.endpoint_changes.applied(1);
    let status = server.status().await;
    assert!(status.in_sync, "{status}");
    bench.end().await;
}

#[tokio::test]
async fn while_rounds_fail_a_status_says_so_at_once() {
    let bench = served(100, PATIENCE);
    // Answered after a round.
    let asked = bench.bell.ask("10.96.0.1:80".parse().unwrap(), None);
    asked.await.unwrap().unwrap_err();
    let status = server(&bench).status().await;
    assert!(!status.in_sync, "{status}");
    let proxy = status.service_proxy.unwrap();
    assert!(proxy.failures > 0, "{proxy}");
    assert!(proxy.last_error.unwrap().contains("read back"));
    assert_eq!(proxy.kernel, Look::unknown("the last round has failed"));
    bench.end().await;
}
