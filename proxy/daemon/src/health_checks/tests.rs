#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener as StdListener, TcpStream};

use seaway_proxy_core::ObjectKey;
use seaway_proxy_core::desired::{DesiredState, HealthCheck, NodePortAddresses};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    wanted: watch::Sender<Wanted>,
    health: Arc<Health>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), std::convert::Infallible>>,
}

impl Bench {
    fn new() -> Self {
        let (wanted, receiver) = watch::channel(Wanted::default());
        let health = Arc::new(Health::new(Duration::from_mins(1)));
        let stop = CancellationToken::new();
        let checks = HealthChecks::new(
            receiver,
            health.clone(),
            Events::nowhere("n1"),
            stop.clone(),
        );
        let task = tokio::spawn(checks.run());
        Self {
            wanted,
            health,
            stop,
            task,
        }
    }

    async fn end(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// A free port, for both families as far as that can be known.
fn port() -> u16 {
    let probe = StdListener::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port()
}

fn desired(checks: &[(&str, Family, u16, usize)]) -> DesiredState {
    let mut desired = DesiredState::default();
    for &(name, family, port, endpoints) in checks {
        let half = desired.family_mut(family);
        let check = HealthCheck { port, endpoints };
        half.health_checks
            .insert(ObjectKey::new("default", name), check);
    }
    desired
}

/// On a node that serves all of it.
fn everything(desired: &DesiredState) -> Wanted {
    Wanted::of(desired, &Family::ALL, &[])
}

/// The whole answer, or why there is none.
async fn ask(addr: &'static str, port: u16, request: &'static str) -> std::io::Result<String> {
    let ask = move || {
        let mut stream = TcpStream::connect((addr, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    spawn_blocking(ask).await.unwrap()
}

async fn eventually(addr: &'static str, port: u16, expect: impl Fn(&str) -> bool) {
    let asked = async {
        loop {
            let answer = ask(addr, port, "GET / HTTP/1.1").await;
            if expect(&answer.unwrap_or_else(|error| error.to_string())) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, asked).await.unwrap();
}

fn ok(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 ")
}

fn closed(answer: &str) -> bool {
    answer.contains("refused")
}

#[tokio::test]
async fn the_answer_is_kube_proxys() {
    let bench = Bench::new();
    let port = port();
    bench
        .wanted
        .send_replace(everything(&desired(&[("web", Family::V4, port, 2)])));
    eventually("127.0.0.1", port, ok).await;
    let answer = ask("127.0.0.1", port, "POST /any/path HTTP/1.1").await;
    let answer = answer.unwrap();
    assert!(ok(&answer), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    for header in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "x-load-balancing-endpoint-weight: 2",
    ] {
        assert!(head.contains(header), "{head}");
    }
    let body: Value = serde_json::from_str(body).unwrap();
    let expect = json!({
        "service": { "namespace": "default", "name": "web" },
        "localEndpoints": 2,
        "serviceProxyHealthy": true,
    });
    assert_eq!(body, expect);
    bench.end().await;
}

#[tokio::test]
async fn without_endpoints_or_without_health_it_says_503() {
    let bench = Bench::new();
    let port = port();
    let want = |count| {
        let desired = desired(&[("web", Family::V4, port, count)]);
        bench.wanted.send_replace(everything(&desired));
    };
    want(0);
    let none = |answer: &str| {
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"localEndpoints\":0")
    };
    eventually("127.0.0.1", port, none).await;
    want(3);
    // The Node is not eligible, and that does not matter here.
    eventually("127.0.0.1", port, ok).await;
    let long_ago = tokio::time::Instant::now()
        .checked_sub(Duration::from_mins(2))
        .unwrap();
    bench
        .health
        .queued(crate::health::services(Family::V4), long_ago);
    let ill = |answer: &str| {
        answer.starts_with("HTTP/1.1 503 ")
            && answer.contains("\"serviceProxyHealthy\":false")
            && answer.contains("endpoint-weight: 3")
    };
    eventually("127.0.0.1", port, ill).await;
    bench.health.updated(crate::health::services(Family::V4));
    eventually("127.0.0.1", port, ok).await;
    bench.end().await;
}

#[tokio::test]
async fn ports_come_move_and_go_with_their_services() {
    let bench = Bench::new();
    let (first, second) = (port(), port());
    let want = |checks: &[_]| bench.wanted.send_replace(everything(&desired(checks)));
    want(&[("web", Family::V4, first, 1)]);
    eventually("127.0.0.1", first, ok).await;
    want(&[("web", Family::V4, second, 1)]);
    eventually("127.0.0.1", second, ok).await;
    eventually("127.0.0.1", first, closed).await;
    // From one Service to another at once.
    want(&[("api", Family::V4, second, 1)]);
    let moved = |answer: &str| answer.contains("\"name\":\"api\"");
    eventually("127.0.0.1", second, moved).await;
    want(&[]);
    eventually("127.0.0.1", second, closed).await;
    want(&[("web", Family::V4, first, 1)]);
    eventually("127.0.0.1", first, ok).await;
    bench.end().await;
    let answer = ask("127.0.0.1", first, "GET / HTTP/1.1").await;
    assert!(closed(&answer.unwrap_err().to_string()));
}

/// The head of the answer on a connection that stays open; nothing if it does not.
fn ask_again(stream: &mut TcpStream) -> String {
    let mut room = [0; 4096];
    let asked = write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let length = asked.and_then(|()| stream.read(&mut room)).unwrap_or(0);
    String::from_utf8_lossy(&room[..length]).into_owned()
}

#[tokio::test]
async fn t7_an_open_connection_is_not_told_that_a_deleted_service_is_well() {
    let bench = Bench::new();
    let port = port();
    let want = |checks: &[_]| bench.wanted.send_replace(everything(&desired(checks)));
    want(&[("web", Family::V4, port, 1)]);
    eventually("127.0.0.1", port, ok).await;
    let opened = spawn_blocking(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = ask_again(&mut stream);
        (stream, answer)
    });
    let (mut stream, answer) = opened.await.unwrap();
    assert!(ok(&answer), "{answer}");
    want(&[]);
    eventually("127.0.0.1", port, closed).await;
    let answer = spawn_blocking(move || ask_again(&mut stream));
    let answer = answer.await.unwrap();
    assert!(!ok(&answer), "{answer}");
    bench.end().await;
}

#[tokio::test]
async fn families_count_their_own_endpoints() {
    let bench = Bench::new();
    let port = port();
    let checks = [("web", Family::V4, port, 1), ("web", Family::V6, port, 0)];
    bench.wanted.send_replace(everything(&desired(&checks)));
    eventually("127.0.0.1", port, ok).await;
    eventually("::1", port, |answer| answer.starts_with("HTTP/1.1 503 ")).await;
    bench.end().await;
}

#[tokio::test]
async fn only_addresses_of_node_ports_are_listened_on() {
    let bench = Bench::new();
    let port = port();
    let mut want = desired(&[("web", Family::V4, port, 1)]);
    want.v4.node_ports = NodePortAddresses {
        networks: Some(vec!["127.0.0.0/8".parse().unwrap()]),
        localhost: true,
    };
    bench.wanted.send_replace(everything(&want));
    eventually("127.0.0.1", port, ok).await;
    // Another one of the same host: its port is still to be had.
    StdListener::bind(("127.0.0.2", port)).unwrap();
    let mut nowhere = want.clone();
    nowhere.v4.node_ports.networks = Some(vec!["192.0.2.0/24".parse().unwrap()]);
    bench.wanted.send_replace(everything(&nowhere));
    eventually("127.0.0.1", port, closed).await;
    bench.end().await;
}

#[tokio::test]
async fn a_taken_port_is_told_and_had_when_it_is_free() {
    let taken = StdListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (sender, receiver) = watch::channel(Wanted::default());
    let health = Arc::new(Health::new(Duration::from_mins(1)));
    let (events, mut told) = Events::queued("n1");
    let mut checks = HealthChecks::new(receiver, health, events, CancellationToken::new());
    let desired = desired(&[("web", Family::V4, port, 1)]);
    sender.send_replace(everything(&desired));
    let wanted = sender.borrow().clone();
    checks.follow(&wanted).await;
    assert_eq!((checks.open.len(), checks.failed.len()), (0, 1));
    // Once per trouble, not per attempt.
    checks.follow(&wanted).await;
    let service = ObjectKey::new("default", "web");
    let error = "Address already in use (os error 98)";
    let expect = Occurrence::no_health_check(&service, "n1", port, error);
    assert_eq!(told.try_recv().unwrap(), expect);
    assert!(told.try_recv().is_err(), "told twice");
    drop(taken);
    checks.follow(&wanted).await;
    assert_eq!((checks.open.len(), checks.failed.len()), (1, 0));
    eventually("127.0.0.1", port, ok).await;
}
