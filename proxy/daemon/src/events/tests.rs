#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use kube::core::Status;

use super::*;

/// An API server that answers every event alike.
#[derive(Clone, Default)]
struct Server {
    refuses: Option<u16>,
    got: Arc<Mutex<Vec<Occurrence>>>,
}

impl Publish for Server {
    async fn publish(&self, occurrence: &Occurrence) -> Result<(), kube::Error> {
        self.got.lock().unwrap().push(occurrence.clone());
        self.refuses.map_or(Ok(()), |code| Err(refused(code)))
    }
}

fn refused(code: u16) -> kube::Error {
    let reason = if code == 403 { "Forbidden" } else { "Other" };
    let status = Status::failure("refused", reason).with_code(code);
    kube::Error::Api(Box::new(status))
}

fn occurrence() -> Occurrence {
    let service = ObjectKey::new("shop", "web");
    Occurrence::no_health_check(&service, "n1", 30_900, "Address already in use")
}

#[test]
fn events_are_those_of_kube_proxy() {
    let event = occurrence().event();
    assert_eq!(event.type_, EventType::Warning);
    assert_eq!(event.reason, "FailedToStartServiceHealthcheck");
    assert_eq!(event.action, "Listen");
    assert_eq!(
        event.note.unwrap(),
        "node n1 failed to start healthcheck \"shop/web\" on port 30900: Address already in use"
    );
    let about = occurrence().about;
    let name = (about.kind, about.namespace, about.name);
    let own = |text: &str| Some(text.to_owned());
    assert_eq!(name, (own("Service"), own("shop"), own("web")));

    let starting = Occurrence::starting("n1");
    let name = (starting.about.kind.clone(), starting.about.name.clone());
    assert_eq!(name, (own("Node"), own("n1")));
    let event = starting.event();
    assert_eq!(
        (event.type_, event.reason.as_str()),
        (EventType::Normal, "Starting")
    );
}

#[test]
fn a_server_that_cannot_start_has_its_own_reason() {
    for (served, reason, note) in [
        (
            Served::Health,
            "FailedToStartProxierHealthcheck",
            "failed to start proxier healthz on 192.0.2.1:7: taken",
        ),
        (
            Served::Metrics,
            "FailedToStartMetricServer",
            "failed to start metrics server on 192.0.2.1:7: taken",
        ),
    ] {
        let event = Occurrence::no_server("n1", served, "192.0.2.1:7", "taken").event();
        assert_eq!(event.type_, EventType::Warning);
        assert_eq!(
            (event.reason.as_str(), event.action.as_str()),
            (reason, "StartKubeProxy")
        );
        assert_eq!(event.note.as_deref(), Some(note));
    }
}

#[test]
fn a_long_note_is_cut_where_the_server_takes_it() {
    let mut long = occurrence();
    long.note = "ä".repeat(NOTE_MAX);
    assert_eq!(long.event().note.unwrap().len(), NOTE_MAX);
}

#[test]
fn a_node_that_fails_in_many_ways_does_not_flood_the_server() {
    let start = Instant::now();
    let mut budget = Budget::full(start);
    let sent = (0..100).filter(|_| budget.take(start)).count();
    assert_eq!(sent, 25);
    assert!(!budget.take(start + REFILL / 2));
    assert!(budget.take(start + REFILL));
    assert!(!budget.take(start + REFILL));
    // A quiet day does not add up to more.
    let later = start + Duration::from_hours(24);
    let sent = (0..100).filter(|_| budget.take(later)).count();
    assert_eq!(sent, 25);
}

#[test]
fn a_missing_right_is_told_once() {
    let mut failures = Failures::default();
    let told = [403, 403, 500, 500, 403].map(|code| failures.tell(&refused(code)));
    assert_eq!(told, [true, false, true, false, false]);
    // Somebody has given it, and taken it away again.
    failures.over();
    assert!(failures.tell(&refused(403)));
}

#[tokio::test]
async fn what_is_told_is_published_whatever_became_of_the_one_before() {
    let server = Server {
        refuses: Some(403),
        ..Server::default()
    };
    let (events, queue) = Events::queued("n1");
    let stop = CancellationToken::new();
    let task = tokio::spawn(Publisher::to(server.clone(), queue).run(stop.clone()));
    let all = [Occurrence::starting("n1"), occurrence()];
    for one in &all {
        events.tell(one.clone());
    }
    let patience = Instant::now() + Duration::from_secs(20);
    while server.got.lock().unwrap().len() < all.len() {
        assert!(Instant::now() < patience, "not published");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(*server.got.lock().unwrap(), all);
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[test]
fn who_tells_does_not_wait() {
    let (events, mut queue) = Events::queued("n1");
    for _ in 0..WAITING * 2 {
        events.tell(occurrence());
    }
    let mut waiting = 0;
    while queue.try_recv().is_ok() {
        waiting += 1;
    }
    assert_eq!(waiting, WAITING);
    Events::nowhere("n1").tell(occurrence());
}
