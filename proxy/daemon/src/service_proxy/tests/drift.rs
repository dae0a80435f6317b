//! What others change while the loop runs.

use super::*;

#[tokio::test]
async fn drift_is_repaired() {
    let mut bench = Bench::new(0, Duration::from_millis(10));
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench.synced().await;
    bench.glass.fake.lock().await.remove_all().await.unwrap();
    bench
        .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
        .await;
    bench.end().await;
}

#[tokio::test]
async fn drift_that_is_noticed_is_repaired_at_once_and_counted() {
    // Longer than the test: without the notice nothing is read back.
    let mut bench = Bench::new(0, Duration::from_hours(1));
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench.synced().await;
    for repaired in 1..=2 {
        bench.glass.fake.lock().await.remove_all().await.unwrap();
        bench.glass.alarm.notify_one();
        bench
            .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
            .await;
        let counted = async {
            while bench.bell.drift_repaired() != repaired {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, counted).await.unwrap();
    }
    bench.end().await;
}

#[tokio::test]
async fn a_change_that_came_together_with_drift_does_not_hide_it() {
    let mut bench = Bench::new(0, Duration::from_hours(1));
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench.synced().await;
    let mut fake = bench.glass.fake.lock().await;
    fake.remove_all().await.unwrap();
    // The loop is held where it begins to read.
    bench.glass.alarm.notify_one();
    tokio::time::sleep(Duration::from_millis(300)).await;
    services(Event::Apply(service("api", "10.96.0.2")));
    drop(fake);
    bench
        .expect(
            "10.96.0.1:80/TCP -> refuse (default/web)\n10.96.0.2:80/TCP -> refuse (default/api)\n",
        )
        .await;
    let counted = async {
        while bench.bell.drift_repaired() != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, counted).await.unwrap();
    bench.end().await;
}
