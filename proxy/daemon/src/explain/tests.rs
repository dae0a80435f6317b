//! The loop's answers, and what it leaves word of.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Event;
use seaway_proxy_core::backend::{Backend as _, BackendError, Retry};
use seaway_proxy_core::explain::kernel::Deviation;

use super::answer::Report;
use crate::config::DetectLocal;
use crate::service_proxy::tests::{Bench, PATIENCE, service, slice};

async fn asked(bench: &Bench, target: &str) -> Result<Report, String> {
    let answer = bench.bell.ask(target.parse().unwrap(), None);
    answer.await.expect("the loop runs")
}

/// One Service with one endpoint, on a fake kernel that is read back so often.
pub(super) fn served(faults: u64, read_back: Duration) -> Bench {
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

/// Nothing comes of waiting, so whoever asks is told, and so is whoever looks after the node.
#[tokio::test]
async fn a_backend_that_cannot_be_opened_is_ill_as_soon_as_there_is_something_to_write() {
    let detect = DetectLocal::ClusterCidrs(Vec::new());
    let (sync, bench) = Bench::parts(0, PATIENCE, PATIENCE, detect);
    let why = BackendError::new("find the iptables flavour", Retry::Backoff);
    let late = || tokio::time::Instant::now() + Duration::from_mins(1);
    sync.closed("iptables", &why, Duration::from_millis(10))
        .await;
    assert!(bench.health.livez(late()).0, "nothing waits");
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    let closed = sync.closed("iptables", &why, PATIENCE);
    let seen = async {
        services(Event::<Service>::InitDone);
        slices(Event::<EndpointSlice>::InitDone);
        while bench.health.livez(late()).0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        asked(&bench, "10.96.0.1:80").await
    };
    let told = tokio::select! {
        () = closed => panic!("it is ill and answers before"),
        told = seen => told,
    };
    assert_eq!(told.unwrap_err(), "find the iptables flavour");
    let said = bench.bell.said();
    assert_eq!((said.failures, said.backend), (2, Some("iptables")));
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

#[tokio::test]
async fn a_look_that_finds_the_kernel_altered_has_it_repaired_after_it() {
    // Longer than the test: without the look nothing is read back.
    let mut bench = served(0, Duration::from_hours(1));
    bench.synced().await;
    let look = bench.bell.look(PATIENCE).await;
    assert_eq!(look.agree, Some(true), "{look}");
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    let look = bench.bell.look(PATIENCE).await;
    assert_eq!((look.agree, look.differing), (Some(false), 1), "{look}");
    assert_eq!(
        look.first[0].to_string(),
        "missing in the kernel: 10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)"
    );
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n")
        .await;
    // A look comes between two rounds, so the repair's word is there.
    let look = bench.bell.look(PATIENCE).await;
    assert_eq!(look.agree, Some(true), "{look}");
    assert_eq!(bench.bell.drift_repaired(), 1);
    bench.end().await;
}

#[tokio::test]
async fn a_look_waits_no_longer_than_it_is_told_for_a_loop_that_is_busy() {
    let mut bench = served(0, Duration::from_hours(1));
    bench.synced().await;
    // The loop is held where it begins to read.
    let fake = bench.glass.fake.lock().await;
    let look = bench.bell.look(Duration::from_millis(50)).await;
    assert_eq!(look.agree, None);
    assert!(look.to_string().contains("busy for 0.05 s"), "{look}");
    drop(fake);
    let look = bench.bell.look(PATIENCE).await;
    assert_eq!(look.agree, Some(true), "{look}");
    let bell = bench.bell.clone();
    bench.end().await;
    let look = bell.look(PATIENCE).await;
    assert!(look.to_string().contains("is ending"), "{look}");
}
