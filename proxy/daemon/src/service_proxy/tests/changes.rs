//! What the watches tell, from the first lists on, and when it is in the kernel.

use super::*;

#[tokio::test]
async fn nothing_is_written_before_both_kinds_are_complete() {
    let mut bench = Bench::new(0, PATIENCE);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::Init);
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::Init);
    slices(Event::InitApply(slice("web", "10.244.0.5")));
    // Longer than any pause of the loop; a round would have happened by now.
    let early = timeout(Duration::from_millis(200), bench.synced.changed()).await;
    assert!(early.is_err(), "synced before the slices were complete");
    assert_eq!(*bench.glass.touched.borrow(), 0, "the kernel was touched");
    slices(Event::InitDone);
    bench.synced().await;
    assert_eq!(
        bench.state().await,
        "10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n"
    );
    bench.end().await;
}

#[tokio::test]
async fn stops_while_it_waits_for_the_lists() {
    let bench = Bench::new(0, PATIENCE);
    let glass = bench.glass.clone();
    bench.end().await;
    assert_eq!(*glass.touched.borrow(), 0);
}

#[tokio::test]
async fn changes_are_followed() {
    let bench = Bench::new(0, PATIENCE);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitDone);
    slices(Event::InitDone);
    services(Event::Apply(service("web", "10.96.0.1")));
    bench
        .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
        .await;
    slices(Event::Apply(slice("web", "10.244.0.5")));
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 (default/web)\n")
        .await;
    slices(Event::Delete(slice("web", "10.244.0.5")));
    bench
        .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
        .await;
    // A relist that does not name the Service any more.
    services(Event::Init);
    services(Event::InitApply(service("api", "10.96.0.2")));
    services(Event::InitDone);
    bench
        .expect("10.96.0.2:80/TCP -> refuse (default/api)\n")
        .await;
    bench.end().await;
}

#[tokio::test]
async fn a_storm_shares_rounds() {
    let bench = Bench::new(0, PATIENCE);
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitDone);
    slices(Event::InitDone);
    for n in 0..200 {
        services(Event::Apply(service("web", &format!("10.96.0.{n}"))));
    }
    bench
        .expect("10.96.0.199:80/TCP -> refuse (default/web)\n")
        .await;
    let applied = bench.glass.applied.load(Ordering::SeqCst);
    assert!(applied < 10, "{applied} rounds for one storm");
    bench.end().await;
}

/// Case 250.
#[tokio::test]
async fn a_change_and_its_revert_are_no_work() {
    let mut bench = Bench::new(0, PATIENCE);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitApply(slice("web", "10.244.0.5")));
    slices(Event::InitDone);
    bench.synced().await;
    let before = bench.glass.applied.load(Ordering::SeqCst);
    let state = bench.state().await;
    // The loop runs on this thread, so it sees none of what is between.
    services(Event::Apply(service("web", "10.96.0.9")));
    services(Event::Apply(service("web", "10.96.0.1")));
    slices(Event::Delete(slice("web", "10.244.0.5")));
    slices(Event::Apply(slice("web", "10.244.0.5")));
    let generation = bench.feed.progress().borrow().generation;
    let mut done = bench.feed.progress();
    services(Event::Apply(service("other", "10.96.0.2")));
    done.wait_for(|p| p.generation > generation).await.unwrap();
    let other = "10.96.0.2:80/TCP -> refuse (default/other)\n";
    bench.expect(&format!("{state}{other}")).await;
    let applied = bench.glass.applied.load(Ordering::SeqCst) - before;
    assert_eq!(applied, 1, "of the other Service");
    bench.end().await;
}

/// A slice whose controller says when what it tells came about.
fn triggered(mut slice: EndpointSlice, time: Timestamp) -> EndpointSlice {
    let annotations = slice.metadata.annotations.get_or_insert_default();
    annotations.insert(TRIGGER_TIME.to_owned(), time.to_string());
    slice
}

#[test]
fn only_changes_since_the_start_are_measured_and_only_once() {
    let metrics = Metrics::register(&mut Registry::default(), ServiceProxy::Ebpf);
    let feed = Feed::new(metrics);
    let mut slices = feed.intake::<EndpointSlice>();
    let now = Timestamp::now();
    let before = feed.started - Duration::from_secs(1);
    slices(Event::Apply(triggered(slice("old", "10.244.0.4"), before)));
    slices(Event::Apply(slice("silent", "10.244.0.4")));
    assert_eq!(feed.triggers(), []);
    let new = triggered(slice("web", "10.244.0.5"), now);
    slices(Event::Apply(new.clone()));
    // Nothing that changes anything.
    slices(Event::Apply(new.clone()));
    assert_eq!(feed.triggers(), [(Family::V4, now)]);
    assert_eq!(feed.triggers(), []);
    // A round that has failed leaves it to the next.
    feed.not_programmed(Some(vec![(Family::V4, now)]));
    slices(Event::Delete(new));
    assert_eq!(feed.triggers(), [(Family::V4, now)]);
}
