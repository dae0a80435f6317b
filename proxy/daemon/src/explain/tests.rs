//! The loop's answers, and what it leaves word of.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::explain::kernel::Deviation;

use super::answer::Report;
use super::status::{PodNetwork, ProxyStatus, Status};
use crate::service_proxy::tests::{Bench, PATIENCE, service, slice};

async fn asked(bench: &Bench, target: &str) -> Result<Report, String> {
    let answer = bench.bell.ask(target.parse().unwrap(), None);
    answer.await.expect("the loop runs")
}

/// One Service with one endpoint, on a fake kernel that is read back so often.
fn served(faults: u64, read_back: Duration) -> Bench {
    let bench = Bench::new(faults, read_back);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitApply(slice("web", "10.244.0.5")));
    slices(Event::InitDone);
    bench
}

#[tokio::test]
async fn the_loop_answers_with_what_is_known_and_what_is_there() {
    let mut bench = served(0, PATIENCE);
    bench.synced().await;
    let report = asked(&bench, "10.96.0.1:80").await.unwrap();
    assert!(report.agree && report.daemon);
    let text = report.to_string();
    assert!(text.contains("clusterIP of Service default/web"), "{text}");
    assert!(text.contains("-> 10.244.0.5:8080"), "{text}");
    // A change that has not been written yet goes first.
    let mut slices = bench.feed.intake();
    slices(Event::Apply(slice("web", "10.244.0.6")));
    let report = asked(&bench, "10.96.0.1:80").await.unwrap();
    assert!(report.agree, "{report}");
    assert!(
        report.to_string().contains("-> 10.244.0.6:8080"),
        "{report}"
    );
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    let report = asked(&bench, "10.96.0.1:80").await.unwrap();
    assert!(!report.agree);
    let difference = &report.kernel.inspection.differences[0];
    assert_eq!(difference.deviation, Deviation::Missing);
    assert!(
        difference.to_string().contains("10.244.0.6:8080"),
        "{difference}"
    );
    // Nobody is served there, and nothing is: both agree.
    assert!(asked(&bench, "10.96.0.9:80").await.unwrap().agree);
    bench.end().await;
}

#[tokio::test]
async fn what_an_answer_finds_altered_is_repaired_after_it_and_counted() {
    // Longer than the test: without the question nothing is read back.
    let mut bench = served(0, Duration::from_hours(1));
    bench.synced().await;
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    assert!(!asked(&bench, "10.96.0.1:80").await.unwrap().agree);
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n")
        .await;
    // An answer comes between two rounds, so the repair's word is there.
    assert!(asked(&bench, "10.96.0.1:80").await.unwrap().agree);
    assert_eq!(bench.bell.drift_repaired(), 1);
    bench.end().await;
}

#[tokio::test]
async fn a_kernel_that_cannot_be_read_is_no_agreement() {
    let bench = served(100, PATIENCE);
    let error = asked(&bench, "10.96.0.1:80").await.unwrap_err();
    assert!(error.contains("read back"), "{error}");
    let said = bench.bell.said();
    assert!(said.failures > 0 && said.synced.is_none(), "{said:?}");
    assert!(said.error.unwrap().contains("read back"));
    bench.end().await;
}

#[tokio::test]
async fn word_is_left_of_rounds_and_repairs() {
    let mut bench = Bench::new(0, Duration::from_millis(10));
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitApply(slice("web", "10.244.0.5")));
    slices(Event::InitDone);
    bench.synced().await;
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n")
        .await;
    // An answer comes between two rounds, so the repair's word is there.
    asked(&bench, "10.96.0.1:80").await.unwrap();
    let said = bench.bell.said();
    assert_eq!((said.drift_repaired, said.failures), (1, 0), "{said:?}");
    assert_eq!(
        (said.service_ports, said.endpoints, said.skipped),
        (1, 1, 0)
    );
    assert!(said.synced.is_some() && said.drift_last.is_some());
    bench.end().await;
}

#[test]
fn a_status_says_what_is_wrong() {
    let good = ProxyStatus {
        backend: "iptables".to_owned(),
        received: true,
        last_sync: Some(Timestamp::UNIX_EPOCH),
        ..ProxyStatus::default()
    };
    assert!(good.in_sync());
    let bad: [fn(&mut ProxyStatus); 4] = [
        |s| s.received = false,
        |s| s.last_sync = None,
        |s| s.failures = 1,
        |s| s.pending_changes = 1,
    ];
    for spoil in bad {
        let mut status = good.clone();
        spoil(&mut status);
        assert!(!status.in_sync(), "{status}");
    }
    let status = Status {
        daemon: true,
        in_sync: false,
        node: "a".to_owned(),
        service_proxy: Some(ProxyStatus {
            variant: Some("nft".to_owned()),
            failures: 2,
            last_error: Some("write the nft rules".to_owned()),
            ..good
        }),
        pod_network: Some(PodNetwork::default()),
    };
    let text = status.to_string();
    for part in [
        "node a: not in sync",
        "service proxy: iptables (nft)",
        "failed 2 times in a row: write the nft rules",
        "pod network: not in sync, CNI conf not there",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(Status::default().to_string(), "the daemon does not run\n");
}
