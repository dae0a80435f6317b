//! What the kernel refuses, and an API server that says nothing.

use super::*;

#[tokio::test]
async fn failures_are_retried_until_the_kernel_agrees() {
    let bench = Bench::new(30, PATIENCE);
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitDone);
    slices(Event::InitDone);
    let mut expect = Vec::new();
    for n in 0..20 {
        services(Event::Apply(service(
            &format!("s{n}"),
            &format!("10.96.0.{n}"),
        )));
        expect.push(format!("10.96.0.{n}:80/TCP -> refuse (default/s{n})\n"));
    }
    expect.sort();
    bench.expect(&expect.concat()).await;
    assert!(bench.glass.fake.lock().await.faults > 0, "no fault was met");
    bench.end().await;
}

#[tokio::test]
async fn a_family_that_cannot_be_written_is_named_and_the_other_is_well() {
    let bench = Bench::new(0, PATIENCE);
    *bench.glass.broken.lock().unwrap() = Some(Family::V6);
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    let refused = "10.96.0.1:80/TCP -> refuse (default/web)\n";
    bench.expect(refused).await;
    // What has failed is tried again, so the next change is known to come after a failure.
    services(Event::Apply(service("web", "10.96.0.2")));
    let refused = "10.96.0.2:80/TCP -> refuse (default/web)\n";
    bench.expect(refused).await;
    let late = || tokio::time::Instant::now() + Duration::from_mins(1);
    let (healthz, report) = bench.health.healthz(late());
    let report = serde_json::to_value(report).unwrap();
    assert!(!healthz && !bench.health.livez(late()).0, "{report}");
    assert_eq!(report["status"]["IPv6"]["healthy"], false, "{report}");
    // It may wait for the round that is being written just now.
    let well = async {
        while !well(&bench.health, "IPv4", late()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        *bench.glass.broken.lock().unwrap() = None;
        services(Event::Apply(service("web", "10.96.0.3")));
        while !bench.health.livez(late()).0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, well).await.unwrap();
    bench.end().await;
}

fn well(health: &Health, part: &str, now: tokio::time::Instant) -> bool {
    let report = serde_json::to_value(health.livez(now).1).unwrap();
    report["status"][part]["healthy"] == true
}

/// One Service, on a kernel that holds it and is read back all the time.
async fn synced() -> Bench {
    let mut bench = Bench::new(0, Duration::from_millis(5));
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench.synced().await;
    bench
}

/// What cannot be read need not be wrong.
#[tokio::test]
async fn a_kernel_that_cannot_be_looked_at_but_has_everything_is_well() {
    let bench = synced().await;
    let (mut services, _) = bench.intakes();
    *bench.glass.unreadable.lock().unwrap() = true;
    let mut touched = bench.glass.touched.subscribe();
    for _ in 0..20 {
        timeout(PATIENCE, touched.changed()).await.unwrap().unwrap();
    }
    let late = || tokio::time::Instant::now() + Duration::from_mins(1);
    assert!(bench.health.livez(late()).0);
    // Something to write is another thing.
    services(Event::Apply(service("web", "10.96.0.2")));
    let ill = async {
        while bench.health.livez(late()).0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ill).await.unwrap();
    bench.end().await;
}

#[tokio::test]
async fn without_a_word_from_the_api_server_the_node_is_kept_and_healthy() {
    let bench = synced().await;
    let (mut services, _) = bench.intakes();
    // From here on the watches are dead, and nobody says so.
    for _ in 0..5 {
        bench.glass.fake.lock().await.remove_all().await.unwrap();
        bench
            .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
            .await;
    }
    // A round without a change leaves nothing to wait for, however long it lasts.
    let hour = tokio::time::Instant::now() + Duration::from_hours(1);
    let healthy = async {
        while !bench.health.livez(hour).0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, healthy).await.unwrap();
    // It is back, begins anew, and has missed a deletion.
    services(Event::Init);
    services(Event::InitApply(service("api", "10.96.0.2")));
    services(Event::InitDone);
    bench
        .expect("10.96.0.2:80/TCP -> refuse (default/api)\n")
        .await;
    bench.end().await;
}
