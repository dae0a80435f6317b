//! Events on objects of the API, for who asks `kubectl describe`.
//!
//! They are a help and never a need: whoever tells one does not wait, and one that there is no
//! room or right for is lost. What matters is logged by those who tell.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use seaway_proxy_core::ObjectKey;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::chain::Chain;

#[cfg(test)]
mod tests;

/// Who we are in an event's `reportingController`.
const CONTROLLER: &str = "seaway-proxy";
/// How many may wait to be sent.
const WAITING: usize = 64;
/// How many may be sent at once,
const BURST: u32 = 25;
/// and how often one more.
const REFILL: Duration = Duration::from_secs(10);
/// The API server's bound is 1 kB.
const NOTE_MAX: usize = 1000;

/// What an address is listened at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// `/healthz` and `/livez`.
    Health,
    /// `/metrics`.
    Metrics,
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occurrence {
    about: ObjectReference,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    note: String,
}

impl Occurrence {
    /// kube-proxy's, under its own name of the reason.
    pub(crate) fn starting(node_name: &str) -> Self {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node_name.to_owned()),
            ..ObjectReference::default()
        };
        Self {
            about,
            warning: false,
            reason: "Starting",
            action: "StartKubeProxy",
            note: String::new(),
        }
    }

    /// /healthz or /metrics cannot be served, and that is to be the end; kube-proxy's reasons.
    pub(crate) fn no_server(node_name: &str, served: Served, address: &str, error: &str) -> Self {
        let (reason, server) = match served {
            Served::Health => ("FailedToStartProxierHealthcheck", "proxier healthz"),
            Served::Metrics => ("FailedToStartMetricServer", "metrics server"),
        };
        Self {
            warning: true,
            reason,
            note: format!("failed to start {server} on {address}: {error}"),
            ..Self::starting(node_name)
        }
    }

    /// Nobody answers a load balancer that asks about this Service; in kube-proxy's words.
    pub(crate) fn no_health_check(
        service: &ObjectKey,
        node_name: &str,
        port: u16,
        error: &str,
    ) -> Self {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(service.namespace.clone()),
            name: Some(service.name.clone()),
            ..ObjectReference::default()
        };
        Self {
            about,
            warning: true,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: format!(
                "node {node_name} failed to start healthcheck \"{service}\" on port {port}: {error}"
            ),
        }
    }

    fn event(&self) -> Event {
        let end = self.note.floor_char_boundary(NOTE_MAX);
        Event {
            type_: if self.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: self.reason.to_owned(),
            note: Some(self.note[..end].to_owned()),
            action: self.action.to_owned(),
            secondary: None,
        }
    }
}

/// Where occurrences are told.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    node_name: String,
    queue: Option<mpsc::Sender<Occurrence>>,
}

impl Events {
    /// Of a node without an API server.
    pub(crate) fn nowhere(node_name: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            queue: None,
        }
    }

    /// The other end is a [`Publisher`]'s.
    pub(crate) fn queued(node_name: &str) -> (Self, mpsc::Receiver<Occurrence>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let events = Self {
            queue: Some(sender),
            ..Self::nowhere(node_name)
        };
        (events, receiver)
    }

    /// This node's name.
    pub(crate) fn node_name(&self) -> &str {
        &self.node_name
    }

    /// Never waits.
    pub(crate) fn tell(&self, occurrence: Occurrence) {
        let Some(queue) = &self.queue else { return };
        if let Err(error) = queue.try_send(occurrence) {
            debug!(%error, "An event is lost");
        }
    }
}

/// Whoever takes events.
pub(crate) trait Publish: Send {
    fn publish(
        &self,
        occurrence: &Occurrence,
    ) -> impl Future<Output = Result<(), kube::Error>> + Send;
}

impl Publish for Recorder {
    async fn publish(&self, occurrence: &Occurrence) -> Result<(), kube::Error> {
        Recorder::publish(self, &occurrence.event(), &occurrence.about).await
    }
}

/// Sends what is told, not too often.
pub(crate) struct Publisher<P> {
    queue: mpsc::Receiver<Occurrence>,
    to: P,
    budget: Budget,
    failures: Failures,
}

impl Publisher<Recorder> {
    pub(crate) fn new(client: Client, node_name: &str, queue: mpsc::Receiver<Occurrence>) -> Self {
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(node_name.to_owned()),
        };
        Self::to(Recorder::new(client, reporter), queue)
    }
}

impl<P: Publish> Publisher<P> {
    fn to(to: P, queue: mpsc::Receiver<Occurrence>) -> Self {
        Self {
            queue,
            to,
            budget: Budget::full(Instant::now()),
            failures: Failures::default(),
        }
    }

    /// Until stopped. What waits then is lost.
    pub(crate) async fn run(
        mut self,
        stop: CancellationToken,
    ) -> Result<(), std::convert::Infallible> {
        let publishing = async {
            while let Some(occurrence) = self.queue.recv().await {
                self.publish(&occurrence, Instant::now()).await;
            }
        };
        stop.run_until_cancelled(publishing).await;
        stop.cancelled().await;
        Ok(())
    }

    async fn publish(&mut self, occurrence: &Occurrence, now: Instant) {
        if !self.budget.take(now) {
            debug!(?occurrence, "Too many events, this one is lost");
            return;
        }
        match self.to.publish(occurrence).await {
            Ok(()) => self.failures.over(),
            Err(error) => {
                self.failures.tell(&error);
            }
        }
    }
}

/// Tells each kind of failure once, until events come through again; a right that is missing
/// once and for all.
#[derive(Debug, Default)]
struct Failures {
    told: BTreeSet<String>,
    forbidden: bool,
}

impl Failures {
    /// Whether it has been told anew.
    fn tell(&mut self, error: &kube::Error) -> bool {
        let forbidden = matches!(error, kube::Error::Api(status) if status.code == 403);
        if forbidden {
            if !std::mem::replace(&mut self.forbidden, true) {
                warn!(error = %Chain(error), "No right to create events; there will be none");
                return true;
            }
            return false;
        }
        let kind = match error {
            kube::Error::Api(status) => status.reason.clone(),
            _ => "no answer".to_owned(),
        };
        let new = self.told.insert(kind);
        if new {
            info!(error = %Chain(error), "An event is lost");
        }
        new
    }

    fn over(&mut self) {
        self.told.clear();
        self.forbidden = false;
    }
}

/// So that a node that fails in many ways does not fail the API server, too.
#[derive(Debug)]
struct Budget {
    left: u32,
    since: Instant,
}

impl Budget {
    fn full(now: Instant) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(self.since).as_secs() / REFILL.as_secs();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.since += REFILL.saturating_mul(passed);
        self.left = self.left.saturating_add(passed).min(BURST);
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}
