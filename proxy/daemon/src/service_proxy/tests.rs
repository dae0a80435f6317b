//! The loop, and a fake kernel that the tests look into.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::fake::{Fake, FakeRendered};
use seaway_proxy_core::skipped::Skipped;
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
use crate::health_checks::Wanted;

mod changes;
mod drift;
mod failures;
mod load_balancers;
mod this_node;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A backend that the test can look into while the loop has it.
#[derive(Clone)]
pub(crate) struct Glass {
    pub(crate) fake: Arc<tokio::sync::Mutex<Fake>>,
    applied: Arc<AtomicUsize>,
    serves: Arc<Mutex<&'static [Family]>>,
    left_out: Arc<Mutex<Vec<Skipped>>>,
    /// Where nothing can be written.
    broken: Arc<Mutex<Option<Family>>>,
    unreadable: Arc<Mutex<bool>>,
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
        *self.serves.lock().unwrap()
    }
    fn unsupported(&self, _desired: &DesiredState) -> Vec<Skipped> {
        self.left_out.lock().unwrap().clone()
    }
    fn render(&self, desired: &DesiredState) -> FakeRendered {
        Fake::new(1, 0).render(desired)
    }
    async fn read_back(&mut self) -> Result<FakeRendered, BackendError> {
        self.touched.send_modify(|n| *n += 1);
        if *self.unreadable.lock().unwrap() {
            return Err(BackendError::new("read", Retry::Backoff));
        }
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
    pub(crate) health: Arc<Health>,
    synced: watch::Receiver<bool>,
    /// What load balancers may be told.
    told: watch::Receiver<Wanted>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
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
        let (sync, bench) = Self::parts(fault_percent, read_back, node_patience, detect);
        let task = tokio::spawn(sync.run(bench.glass.clone()));
        Self {
            task: Some(task),
            ..bench
        }
    }

    /// A loop that has not begun, and what looks at it.
    pub(crate) fn parts(
        fault_percent: u64,
        read_back: Duration,
        node_patience: Duration,
        detect: DetectLocal,
    ) -> (SyncLoop, Self) {
        let both: &'static [Family] = &Family::ALL;
        let glass = Glass {
            fake: Arc::new(tokio::sync::Mutex::new(Fake::new(7, fault_percent))),
            applied: Arc::default(),
            serves: Arc::new(Mutex::new(both)),
            left_out: Arc::default(),
            broken: Arc::default(),
            unreadable: Arc::default(),
            touched: watch::Sender::default(),
            alarm: Arc::default(),
        };
        let metrics = Metrics::register(&mut Registry::default(), ServiceProxy::Ebpf);
        let feed = Feed::new(metrics.clone());
        let (synced_sender, synced) = watch::channel(false);
        let (health_checks, told) = watch::channel(Wanted::default());
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
            health_checks,
            desk,
            stop: stop.clone(),
        };
        let bench = Self {
            glass,
            feed,
            bell,
            health,
            synced,
            told,
            stop,
            task: None,
        };
        (sync, bench)
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
        let task = self.task.expect("it has begun");
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
}

fn own_node(zone: &str, pod_cidrs: &[&str]) -> OwnNode {
    OwnNode {
        zone: Some(zone.to_owned()),
        addresses: vec!["172.30.0.11".parse().unwrap()],
        pod_cidrs: pod_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
    }
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
