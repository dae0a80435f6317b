use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::fake::{Fake, FakeRendered};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::sync::{SyncLoop, Timing};
use super::*;
use crate::config::{DetectLocal, ServiceProxy, ServicesConfig};
use crate::explain::{Bell, Desk};
use crate::health::Health;

mod drift;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A backend that the test can look into while the loop has it.
#[derive(Clone)]
pub(crate) struct Glass {
    pub(crate) fake: Arc<tokio::sync::Mutex<Fake>>,
    applied: Arc<AtomicUsize>,
    /// Where nothing can be written.
    broken: Arc<Mutex<Option<Family>>>,
    touched: watch::Sender<usize>,
    /// Somebody else has changed something.
    pub(crate) alarm: Arc<Notify>,
}

impl Backend for Glass {
    type Rendered = FakeRendered;
    fn name(&self) -> &'static str {
        "glass"
    }
    fn families(&self) -> &'static [Family] {
        &Family::ALL
    }
    fn render(&self, desired: &DesiredState) -> FakeRendered {
        Fake::new(1, 0).render(desired)
    }
    async fn read_back(&mut self) -> Result<FakeRendered, BackendError> {
        self.touched.send_modify(|n| *n += 1);
        self.fake.lock().await.read_back().await
    }
    async fn apply(
        &mut self,
        have: &FakeRendered,
        want: &FakeRendered,
    ) -> Result<(), BackendError> {
        self.applied.fetch_add(1, Ordering::SeqCst);
        let mut result = self.fake.lock().await.apply(have, want).await;
        let broken = *self.broken.lock().unwrap();
        if result.is_ok() && broken.is_some() {
            result = Err(BackendError::new("write", Retry::Backoff).only_in(broken));
        }
        self.touched.send_modify(|n| *n += 1);
        result
    }
    async fn disturbed(&mut self) {
        self.alarm.notified().await;
    }
    fn is_watched(&self) -> bool {
        true
    }
    async fn remove_all(&mut self) -> Result<(), BackendError> {
        self.fake.lock().await.remove_all().await
    }
}

pub(crate) struct Bench {
    pub(crate) glass: Glass,
    pub(crate) feed: Arc<Feed>,
    pub(crate) bell: Bell,
    health: Arc<Health>,
    synced: watch::Receiver<bool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Bench {
    /// On a node that is known.
    pub(crate) fn new(fault_percent: u64, read_back: Duration) -> Self {
        let undetected = DetectLocal::ClusterCidrs(Vec::new());
        let bench = Self::without_node(fault_percent, read_back, PATIENCE, undetected);
        bench.feed.node_seen(own_node("", &[]));
        bench
    }

    fn without_node(
        fault_percent: u64,
        read_back: Duration,
        node_patience: Duration,
        detect: DetectLocal,
    ) -> Self {
        let glass = Glass {
            fake: Arc::new(tokio::sync::Mutex::new(Fake::new(7, fault_percent))),
            applied: Arc::default(),
            broken: Arc::default(),
            touched: watch::Sender::default(),
            alarm: Arc::default(),
        };
        let metrics = Metrics::register(&mut Registry::default(), ServiceProxy::Ebpf);
        let feed = Feed::new(metrics.clone());
        let (synced_sender, synced) = watch::channel(false);
        let stop = CancellationToken::new();
        let (desk, bell) = Desk::new(Vec::new());
        let health = Arc::new(Health::new(Duration::from_mins(1)));
        let sync = SyncLoop {
            feed: feed.clone(),
            node_name: "a".to_owned(),
            config: ServicesConfig {
                detect,
                ..ServicesConfig::default()
            },
            health: health.clone(),
            metrics,
            timing: Timing {
                pause_min: Duration::from_millis(5),
                pause_max: Duration::from_millis(20),
                read_back_min: read_back,
                read_back_max: read_back,
                look_min: Duration::from_millis(5),
                retry_min: Duration::from_millis(1),
                retry_max: Duration::from_millis(20),
                node_patience,
            },
            synced: synced_sender,
            health_checks: watch::Sender::default(),
            desk,
            stop: stop.clone(),
        };
        let task = tokio::spawn(sync.run(glass.clone()));
        Self {
            glass,
            feed,
            bell,
            health,
            synced,
            stop,
            task,
        }
    }

    /// What watches of both kinds hand their events to.
    pub(crate) fn intakes(
        &self,
    ) -> (
        impl FnMut(Event<Service>) + use<>,
        impl FnMut(Event<EndpointSlice>) + use<>,
    ) {
        (self.feed.intake(), self.feed.intake())
    }

    async fn state(&self) -> String {
        self.glass.fake.lock().await.state().to_string()
    }

    /// Waits until the fake kernel holds exactly `expect`.
    pub(crate) async fn expect(&self, expect: &str) {
        let mut touched = self.glass.touched.subscribe();
        let reached = async {
            while self.state().await != expect {
                touched.changed().await.unwrap();
            }
        };
        let reached = timeout(PATIENCE, reached).await.is_ok();
        assert!(
            reached,
            "expected:
{expect}got:
{}",
            self.state().await
        );
    }

    pub(crate) async fn synced(&mut self) {
        timeout(PATIENCE, self.synced.wait_for(|s| *s))
            .await
            .unwrap()
            .unwrap();
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

fn own_node(zone: &str, pod_cidrs: &[&str]) -> OwnNode {
    OwnNode {
        zone: Some(zone.to_owned()),
        addresses: vec!["172.30.0.11".parse().unwrap()],
        pod_cidrs: pod_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
    }
}

/// An endpoint for the clients of each zone.
fn zoned_slice(service: &str) -> EndpointSlice {
    let endpoint = |(addr, zone)| {
        json!({
            "addresses": [addr], "conditions": { "ready": true },
            "hints": { "forZones": [{ "name": zone }] },
        })
    };
    let endpoints = [("10.244.0.5", "z1"), ("10.244.0.6", "z2")].map(endpoint);
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": format!("{service}-x"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
    }))
    .unwrap()
}

pub(crate) fn service(name: &str, ip: &str) -> Service {
    serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "clusterIP": ip, "clusterIPs": [ip], "ports": [{ "port": 80, "protocol": "TCP" }] },
    }))
    .unwrap()
}

pub(crate) fn slice(service: &str, ip: &str) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": format!("{service}-x"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [ip], "conditions": { "ready": true } }],
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
    }))
    .unwrap()
}

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
async fn stops_while_it_waits_for_the_lists() {
    let bench = Bench::new(0, PATIENCE);
    let glass = bench.glass.clone();
    bench.end().await;
    assert_eq!(*glass.touched.borrow(), 0);
}

#[tokio::test]
async fn the_first_round_knows_the_node_and_later_ones_follow_it() {
    let mut bench = Bench::without_node(0, PATIENCE, PATIENCE, DetectLocal::NodeCidrs);
    let (mut services, mut slices) = (bench.feed.intake(), bench.feed.intake());
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitApply(zoned_slice("web")));
    slices(Event::InitDone);
    // What is wanted of the Node is its podCIDRs, and they are not there yet.
    bench.feed.node_seen(own_node("z1", &[]));
    let early = timeout(Duration::from_millis(100), bench.synced.changed()).await;
    assert!(early.is_err(), "synced before the node was known");
    assert_eq!(*bench.glass.touched.borrow(), 0, "the kernel was touched");
    bench.feed.node_seen(own_node("z1", &["10.244.0.0/24"]));
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.5:8080 | from outside 10.244.0.5:8080 masq (default/web)\n")
        .await;
    bench.feed.node_seen(own_node("z2", &["10.244.0.0/24"]));
    bench
        .expect("10.96.0.1:80/TCP -> 10.244.0.6:8080 | from outside 10.244.0.6:8080 masq (default/web)\n")
        .await;
    bench.end().await;
}

#[tokio::test]
async fn a_node_that_does_not_come_is_not_waited_for_for_ever() {
    let patience = Duration::from_millis(20);
    let bench = Bench::without_node(0, PATIENCE, patience, DetectLocal::NodeCidrs);
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench
        .expect("10.96.0.1:80/TCP -> refuse (default/web)\n")
        .await;
    bench.end().await;
}

#[test]
fn the_node_is_what_the_object_and_the_operator_say() {
    use seaway_proxy_core::node::{Detect, NodePorts};

    let mut config = ServicesConfig {
        detect: DetectLocal::NodeCidrs,
        node_ports: NodePorts::Primary,
        localhost_node_ports: false,
        masquerade_all: true,
        ..ServicesConfig::default()
    };
    let own = own_node("z1", &["10.244.0.0/24"]);
    let got = node::of("a", Some(own.clone()), &config);
    assert_eq!((got.name.as_str(), got.zone.as_deref()), ("a", Some("z1")));
    assert_eq!(got.addresses, own.addresses);
    assert_eq!(got.detect, Detect::Networks(own.pod_cidrs.clone()));
    assert_eq!(got.node_ports, NodePorts::Primary);
    assert!(got.masquerade_all && !got.localhost_node_ports);
    for (detect, expect) in [
        (
            DetectLocal::ClusterCidrs(own.pod_cidrs.clone()),
            Detect::Networks(own.pod_cidrs.clone()),
        ),
        (
            DetectLocal::Interface("br0".to_owned()),
            Detect::Interface("br0".to_owned()),
        ),
        (
            DetectLocal::InterfacePrefix("sw".to_owned()),
            Detect::InterfacePrefix("sw".to_owned()),
        ),
    ] {
        config.detect = detect;
        assert_eq!(node::of("a", Some(own.clone()), &config).detect, expect);
    }
    // The operator's word goes before the object's.
    for (address, expect) in [
        ("192.0.2.7", vec!["192.0.2.7"]),
        ("fd00::7", vec!["fd00::7", "172.30.0.11"]),
    ] {
        config.node_address = Some(address.parse().unwrap());
        let got = node::of("a", Some(own.clone()), &config).addresses;
        let got: Vec<String> = got.iter().map(ToString::to_string).collect();
        assert_eq!(got, expect);
    }
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

#[tokio::test]
async fn without_a_word_from_the_api_server_the_node_is_kept_and_healthy() {
    let mut bench = Bench::new(0, Duration::from_millis(5));
    let (mut services, mut slices) = bench.intakes();
    services(Event::InitApply(service("web", "10.96.0.1")));
    services(Event::InitDone);
    slices(Event::InitDone);
    bench.synced().await;
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
