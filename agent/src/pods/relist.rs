//! Notices changes in the runtime: events where it has them, lists always.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use seaway_agent_core::sandbox::labels;
use seaway_agent_cri::{CriError, v1};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info, warn};

use super::{Shared, chain};

/// How often the runtime is listed where it sends no events (containerd before
/// 1.7): this bounds how late an exit is noticed.
const WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// The same with events, which may get lost.
const WITH_EVENTS: Duration = Duration::from_secs(5);
/// How soon a broken event stream is opened again.
const REOPEN: Duration = Duration::from_secs(2);

/// One pod in the runtime, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) namespace: String,
    /// Seconds from the stop signal to the kill, as the sandbox was told.
    pub(super) grace: Option<i64>,
    /// Ids and states of everything of the pod: differs when anything does.
    parts: Vec<(String, i32)>,
}

/// Everything in the runtime, by pod UID.
pub(super) type Traces = BTreeMap<String, Trace>;

/// Lists the runtime again and again into `traces`.
pub(super) async fn relist(
    shared: Arc<Shared>,
    traces: watch::Sender<Option<Traces>>,
    has_events: watch::Receiver<bool>,
) {
    let mut answered = true;
    loop {
        let begun = Instant::now();
        match list(&shared).await {
            Ok(found) => {
                answered = true;
                traces.send_if_modified(|known| {
                    let changed = known.as_ref() != Some(&found);
                    *known = Some(found);
                    changed
                });
            }
            Err(error) if answered => {
                answered = false;
                warn!(error = %chain(&error), "Runtime does not answer");
            }
            Err(_still_away) => {}
        }
        let period = if *has_events.borrow() {
            WITH_EVENTS
        } else {
            WITHOUT_EVENTS
        };
        tokio::time::sleep_until(begun + period).await;
    }
}

async fn list(shared: &Shared) -> Result<Traces, CriError> {
    let (sandboxes, containers) = tokio::join!(
        shared.cri.list_pod_sandboxes(&[]),
        shared.cri.list_containers(&[])
    );
    let mut traces = Traces::new();
    for sandbox in sandboxes? {
        let Some(metadata) = sandbox.metadata.filter(|m| !m.uid.is_empty()) else {
            continue;
        };
        let trace = traces.entry(metadata.uid).or_default();
        trace.name = metadata.name;
        trace.namespace = metadata.namespace;
        let grace = sandbox.annotations.get(labels::GRACE_PERIOD);
        trace.grace = trace.grace.or(grace.and_then(|text| text.parse().ok()));
        trace.parts.push((sandbox.id, sandbox.state));
    }
    for container in containers? {
        let Some(uid) = container.labels.get(labels::POD_UID) else {
            continue;
        };
        let trace = traces.entry(uid.clone()).or_default();
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        trace.name = label(labels::POD_NAME);
        trace.namespace = label(labels::POD_NAMESPACE);
        trace.parts.push((container.id, container.state));
    }
    for trace in traces.values_mut() {
        trace.parts.sort();
    }
    Ok(traces)
}

/// Sends the UIDs of pods in which something ended, as the runtime tells it.
/// `has_events` says whether it does. What does not fit into the channel is left to
/// the list.
pub(super) async fn follow_events(
    shared: Arc<Shared>,
    exits: mpsc::Sender<String>,
    has_events: watch::Sender<bool>,
) {
    let mut ticks = tokio::time::interval(REOPEN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut events = match shared.cri.container_events().await {
            Ok(events) => events,
            Err(error) if error.is_unimplemented() => {
                info!("Runtime has no event stream, listing every second instead");
                return;
            }
            Err(error) => {
                debug!(error = %chain(&error), "Event stream not opened");
                continue;
            }
        };
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    has_events.send_if_modified(|has| !std::mem::replace(has, true));
                    if let Some(uid) = exited_pod(event)
                        && exits.try_send(uid).is_err()
                    {
                        debug!("Event left to the list");
                    }
                }
                Err(error) if error.is_unimplemented() => {
                    info!("Runtime has no event stream, listing every second instead");
                    return;
                }
                ended => {
                    debug!(?ended, "Event stream ended");
                    break;
                }
            }
        }
        has_events.send_if_modified(|has| std::mem::replace(has, false));
    }
}

/// The pod in which a container or the sandbox ended.
fn exited_pod(event: v1::ContainerEventResponse) -> Option<String> {
    let ended = matches!(
        event.container_event_type(),
        v1::ContainerEventType::ContainerStoppedEvent
            | v1::ContainerEventType::ContainerDeletedEvent
    );
    let metadata = event.pod_sandbox_status?.metadata?;
    (ended && !metadata.uid.is_empty()).then_some(metadata.uid)
}
