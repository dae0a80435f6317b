//! The Node object: registered, kept current, and gone on with when somebody deletes it.
//!
//! ```text
//! facts (/proc, /sys) ─┐
//! runtime status ──────┼─► status (pure) ─► patch, if it differs or is 5 min old
//! Node in the API ─────┘
//! ```
//!
//! The heartbeat is the Lease (`lease`), which has a client of its own, so that a slow
//! status write cannot make the node look dead.

mod conditions;
mod facts;
pub(crate) mod lease;
mod patch;
mod register;
mod status;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::error::{Chain, is_not_found};
use crate::config::NodeConfig;
use crate::events::{EventSink, NodeEvent};
use crate::objects::EventType;
use crate::runtime_status::RuntimeStatus;
pub use conditions::{Pressure, PressureMemory};
pub use facts::Facts;
pub use register::{Registration, initial_node};
pub use status::{Inputs, KUBELET_VERSION, node_status};

/// How often the status is computed: `nodeStatusUpdateFrequency`.
const COMPUTE_EVERY: Duration = Duration::from_secs(10);

/// How often until the node has been ready once.
const COMPUTE_EVERY_AT_START: Duration = Duration::from_millis(100);

/// An unchanged status is written again after this: `nodeStatusReportFrequency`.
const REPORT_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// How long the watch may take to show what was written.
const SETTLING: SignedDuration = SignedDuration::from_secs(5);

/// A write that takes longer is given up and tried again; the node controller's
/// patience is 40 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps the Node object current until `shutdown`.
pub struct NodeKeeper {
    /// What is configured.
    pub config: NodeConfig,
    /// What the Node is registered with.
    pub registration: Registration,
    /// To the API server.
    pub client: Client,
    /// The Node object as it is watched; others write to it too.
    pub watched: Store<Node>,
    /// What the runtime says.
    pub runtime: watch::Receiver<RuntimeStatus>,
    /// Where the UID of the registered Node is announced; the Lease belongs to it.
    pub uid: watch::Sender<Option<String>>,
    /// For `NodeReady` and the like.
    pub events: EventSink,
}

impl std::fmt::Debug for NodeKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKeeper")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What was written last.
struct Written {
    node: Node,
    at: Timestamp,
}

impl NodeKeeper {
    /// Registers, then reports until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let keep = async {
            let mut pressure = PressureMemory::default();
            loop {
                let node = self.register().await;
                self.uid.send_replace(node.metadata.uid.clone());
                self.starting(&node);
                self.report(node, &mut pressure).await;
                warn!(
                    node = self.config.name,
                    "Node object is gone, registering again"
                );
            }
        };
        tokio::select! {
            () = keep => {}
            () = shutdown.cancelled() => {}
        }
    }

    fn starting(&self, node: &Node) {
        let boot_id = Facts::read(&self.config.root_dir).boot_id;
        let known = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        if known.is_some_and(|info| !info.boot_id.is_empty() && info.boot_id != boot_id) {
            let message = format!(
                "Node {} has been rebooted, boot id: {boot_id}",
                self.config.name
            );
            self.event(EventType::Warning, "Rebooted", message);
        }
        self.event(
            EventType::Normal,
            "Starting",
            "Starting kubelet.".to_owned(),
        );
    }

    /// Returns when the Node object is gone.
    async fn report(&mut self, node: Node, pressure: &mut PressureMemory) {
        let mut written = Written {
            node,
            at: Timestamp::now(),
        };
        let mut first = true;
        let mut been_ready = false;
        loop {
            let started = Instant::now();
            if self.is_gone(&written).await {
                return;
            }
            written.node = self.newest(written.node);
            let status = self.compute(&written.node, pressure);
            let ready = self.runtime.borrow_and_update().all_ready();
            if std::mem::take(&mut first) || needs_writing(&written, &status) {
                match self.write(&written.node, &status).await {
                    Ok(node) => {
                        self.tell_transition(&written.node, ready);
                        written = Written {
                            node,
                            at: Timestamp::now(),
                        };
                    }
                    Err(error) if is_not_found(&error) => return,
                    Err(error) => warn!(error = %Chain(&error), "Could not write node status"),
                }
            }
            been_ready |= ready;
            self.wait(started, been_ready).await;
        }
    }

    /// Until the next computation is due, or the runtime's state has changed.
    async fn wait(&mut self, started: Instant, been_ready: bool) {
        let pause = if been_ready {
            COMPUTE_EVERY
        } else {
            COMPUTE_EVERY_AT_START
        };
        tokio::select! {
            () = tokio::time::sleep_until(started + pause) => {}
            // Ready follows the runtime at once. A closed channel means shutdown.
            Ok(()) = self.runtime.changed() => {}
        }
    }

    /// The watch may be behind our own last write, or ahead of it.
    fn newest(&self, written: Node) -> Node {
        let version = |node: &Node| -> Option<u64> {
            node.metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
        };
        let watched = self
            .watched
            .find(|node| node.metadata.uid == written.metadata.uid);
        match watched {
            Some(watched) if version(&watched) > version(&written) => Node::clone(&watched),
            _ => written,
        }
    }

    /// Whether the watch shows no such Node any more and the API server confirms it.
    async fn is_gone(&self, written: &Written) -> bool {
        let uid = &written.node.metadata.uid;
        let fresh = Timestamp::now().duration_since(written.at) < SETTLING;
        if fresh
            || self
                .watched
                .find(|node| node.metadata.uid == *uid)
                .is_some()
        {
            return false;
        }
        let api: Api<Node> = Api::all(self.client.clone());
        match crate::api::error::within(REQUEST_TIMEOUT, api.get(&self.config.name)).await {
            Ok(node) => node.metadata.uid != *uid,
            Err(error) => is_not_found(&error),
        }
    }

    fn compute(&self, node: &Node, pressure: &mut PressureMemory) -> NodeStatus {
        let (facts, now) = (Facts::read(&self.config.root_dir), Timestamp::now());
        let inputs = Inputs {
            config: &self.config,
            port: Some(self.registration.port),
            facts: &facts,
            runtime: &self.runtime.borrow(),
            pressure: pressure.observe(&facts, self.config.eviction_hard, now),
            now,
        };
        node_status(&inputs, &node.status.clone().unwrap_or_default())
    }

    async fn write(&self, node: &Node, status: &NodeStatus) -> Result<Node, kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(patch::status_patch(node, status));
        let params = PatchParams::default();
        let request = api.patch_status(&self.config.name, &params, &patch);
        crate::api::error::within(REQUEST_TIMEOUT, request).await
    }

    fn tell_transition(&self, before: &Node, ready: bool) {
        let was_ready = before.status.as_ref().and_then(patch::ready_status) == Some("True");
        let name = &self.config.name;
        match (was_ready, ready) {
            (false, true) => {
                info!(node = name, "Node is ready");
                let message = format!("Node {name} status is now: NodeReady");
                self.event(EventType::Normal, "NodeReady", message);
            }
            (true, false) => {
                warn!(
                    node = name,
                    why = self.runtime.borrow().message,
                    "Node is not ready"
                );
                let message = format!("Node {name} status is now: NodeNotReady");
                self.event(EventType::Normal, "NodeNotReady", message);
            }
            _ => {}
        }
    }

    fn event(&self, event_type: EventType, reason: &'static str, message: String) {
        self.events.node(NodeEvent {
            event_type,
            reason,
            message,
        });
    }
}

fn needs_writing(written: &Written, status: &NodeStatus) -> bool {
    let known = written.node.status.clone().unwrap_or_default();
    patch::differs(&known, status) || Timestamp::now().duration_since(written.at) >= REPORT_EVERY
}
