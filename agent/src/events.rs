//! Events, as `kubectl describe` shows them: aggregated, limited, never in the way.
//!
//! Callers put events into a bounded queue; one task writes them. A queue that is full
//! drops, an object that talks too much is cut, and repetition raises a counter instead
//! of making a new event, as client-go's recorder does.

mod aggregate;
mod record;

use k8s_openapi::api::core::v1::{Event, ObjectReference, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::api::error::{Chain, is_not_found};
use crate::objects::{EventType, PodEvent};
use aggregate::{Aggregator, Outcome};
pub(crate) use record::Occurrence;

/// What a burst of a node's pods (110, a handful of events each) can queue.
const QUEUE: usize = 1000;

/// An event about this node.
#[derive(Clone, Debug)]
pub struct NodeEvent {
    /// Normal or Warning.
    pub event_type: EventType,
    /// `NodeReady`, for example.
    pub reason: &'static str,
    /// One sentence for a person.
    pub message: String,
}

/// Where events are put; cheap to clone.
#[derive(Clone, Debug)]
pub struct EventSink {
    node: String,
    queue: mpsc::Sender<Occurrence>,
}

/// Writes what is put into its sink.
#[derive(Debug)]
pub struct EventWriter {
    node: String,
    queue: mpsc::Receiver<Occurrence>,
}

/// A sink and its writer, for events of the node's `kubelet`.
pub fn channel(node: &str) -> (EventSink, EventWriter) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let sink = EventSink {
        node: node.to_owned(),
        queue: sender,
    };
    (
        sink,
        EventWriter {
            node: node.to_owned(),
            queue: receiver,
        },
    )
}

impl EventSink {
    /// Queues an event about a pod.
    pub fn pod(&self, event: PodEvent) {
        self.put(Occurrence::new(
            pod_reference(&event.pod, event.field_path),
            event.event_type,
            event.reason,
            event.message,
        ));
    }

    /// Queues an event about this node.
    pub fn node(&self, event: NodeEvent) {
        let object = ObjectReference {
            kind: Some("Node".into()),
            name: Some(self.node.clone()),
            // Not the UID: kubelet's events carry the name here, and describe looks for it.
            uid: Some(self.node.clone()),
            ..ObjectReference::default()
        };
        self.put(Occurrence::new(
            object,
            event.event_type,
            event.reason,
            event.message,
        ));
    }

    fn put(&self, occurrence: Occurrence) {
        if let Err(error) = self.queue.try_send(occurrence) {
            debug!(%error, "Dropped an event");
        }
    }
}

fn pod_reference(pod: &Pod, field_path: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path,
    }
}

impl EventWriter {
    /// Writes to the API server until `shutdown`.
    pub async fn write_to_api(mut self, client: Client, shutdown: CancellationToken) {
        let mut aggregator = Aggregator::default();
        loop {
            let occurrence = tokio::select! {
                Some(occurrence) = self.queue.recv() => occurrence,
                () = shutdown.cancelled() => return,
                else => return,
            };
            let now = jiff::Timestamp::now();
            let Some(outcome) = aggregator.take(occurrence, now) else {
                continue;
            };
            let written = tokio::select! {
                written = write(&client, &self.node, &outcome) => written,
                () = shutdown.cancelled() => return,
            };
            match written {
                Ok(()) => {}
                Err(error) => warn!(error = %Chain(&error), "Could not write an event"),
            }
            tokio::time::sleep(aggregate::PAUSE).await;
        }
    }

    /// Logs them instead, where there is no API server.
    pub async fn write_to_log(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                Some(occurrence) = self.queue.recv() => occurrence.log(),
                () = shutdown.cancelled() => return,
                else => return,
            }
        }
    }
}

async fn write(client: &Client, node: &str, outcome: &Outcome) -> Result<(), kube::Error> {
    let event = outcome.occurrence.to_event(node, outcome);
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    if outcome.count > 1 {
        let patch = Patch::Merge(json!({
            "count": event.count,
            "lastTimestamp": event.last_timestamp,
            "message": event.message,
        }));
        match api
            .patch(&outcome.name, &PatchParams::default(), &patch)
            .await
        {
            // It has expired; it is made anew with its count.
            Err(error) if is_not_found(&error) => {}
            other => return other.map(drop),
        }
    }
    api.create(&PostParams::default(), &event).await.map(drop)
}
