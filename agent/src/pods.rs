//! Pods: from what the source wants to what runs, and back to a truthful status.
//!
//! ```text
//! source ──► manager ──► one worker per pod UID ──► runtime, volumes
//!               ▲            │        │
//!  runtime ─────┘            ▼        └──► status, events
//!  (events, relist)       views ──► PodsHandle (logs, exec, lists)
//! ```
//! Decisions are in `seaway-agent-core` (`step`, `status`); this module only looks,
//! acts and reports. A worker never waits for another one, and what is slow (pulls,
//! stops) runs beside its worker's loop. It deliberately leaves everything running
//! when the agent ends: the next agent adopts what it finds.

mod cgroups;
mod convert;
mod files;
mod handle;
mod images;
mod log_dirs;
mod manager;
mod observe;
mod oom;
mod operations;
mod probe_http;
mod probes;
mod publish;
mod relist;
mod runtime;
mod start;
mod worker;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::api::core::v1::Pod;
use seaway_agent_core::observed::Observed;
use seaway_agent_core::qos::CgroupDriver;
use seaway_agent_core::spec;
use seaway_agent_core::status::NodeFacts;
use seaway_agent_cri::CriClient;
use tokio::sync::{OnceCell, Semaphore, watch};

use log_dirs::LogDirs;

pub use handle::{ContainerRef, LookupError, PodsHandle};
pub use manager::{PodStream, PodsError};

use crate::objects::{EventType, Objects, PodEvent};
use crate::runtime_status::RuntimeStatus;
use crate::volumes::Volumes;

/// What pods on this node need to know of it.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// The node's name.
    pub node_name: String,
    /// The node's addresses, primary first.
    pub node_ips: Vec<IpAddr>,
    /// One directory for each pod UID below this one.
    pub pods_dir: PathBuf,
    /// Containers' logs: `NAMESPACE_NAME_UID/CONTAINER/N.log` below it.
    pub pod_log_dir: PathBuf,
    /// Which of those directories this agent has made: a file for each of them.
    pub log_records_dir: PathBuf,
    /// Parent of all pods' cgroups in every hierarchy: `/`, `/node-a`.
    pub cgroup_root: String,
    /// DNS servers of pods with `dnsPolicy: ClusterFirst`.
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
    /// The node's own name resolution, for `dnsPolicy: Default`.
    pub resolv_conf: PathBuf,
    /// How many images are pulled at the same time.
    pub max_parallel_pulls: usize,
}

/// Runs the pods of this node.
#[derive(Debug)]
pub struct PodManager {
    shared: Arc<Shared>,
}

impl PodManager {
    /// Nothing happens before [`run`](Self::run).
    pub fn new(
        config: PodsConfig,
        cri: CriClient,
        objects: Arc<dyn Objects>,
        volumes: Arc<Volumes>,
    ) -> Self {
        let pulls = Semaphore::new(config.max_parallel_pulls.max(1));
        let shared = Shared {
            pulls,
            log_dirs: LogDirs::new(&config.pod_log_dir, &config.log_records_dir),
            config,
            cri,
            objects,
            volumes,
            views: RwLock::new(BTreeMap::new()),
            runtime: watch::Sender::new(RuntimeStatus::default()),
            cgroup_driver: OnceCell::new(),
            oom_floor: oom::floor(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// For whoever serves logs, commands and lists.
    pub fn handle(&self) -> PodsHandle {
        PodsHandle::new(Arc::clone(&self.shared))
    }
}

/// One pod as its worker saw it last.
#[derive(Clone, Debug)]
struct View {
    /// With its current status.
    pod: Pod,
    observed: Observed,
}

/// What every part of this module needs.
struct Shared {
    config: PodsConfig,
    cri: CriClient,
    objects: Arc<dyn Objects>,
    volumes: Arc<Volumes>,
    /// By pod UID. Held for moments only, never across an await.
    views: RwLock<BTreeMap<String, View>>,
    runtime: watch::Sender<RuntimeStatus>,
    pulls: Semaphore,
    log_dirs: LogDirs,
    cgroup_driver: OnceCell<CgroupDriver>,
    /// No container can have a lower `oom_score_adj`.
    oom_floor: i64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn read_views(&self) -> RwLockReadGuard<'_, BTreeMap<String, View>> {
        self.views.read().expect("no holder panics")
    }

    fn write_views(&self) -> RwLockWriteGuard<'_, BTreeMap<String, View>> {
        self.views.write().expect("no holder panics")
    }

    fn facts(&self) -> NodeFacts {
        let runtime_name = self.runtime.borrow().runtime_name.clone();
        NodeFacts {
            ips: self.config.node_ips.clone(),
            // Only ever empty before the runtime's first answer.
            runtime_name: if runtime_name.is_empty() {
                "containerd".into()
            } else {
                runtime_name
            },
        }
    }

    fn event(&self, pod: &Pod, event_type: EventType, reason: &'static str, message: String) {
        self.objects.event(PodEvent {
            pod: pod.clone(),
            field_path: None,
            event_type,
            reason,
            message,
        });
    }

    fn container_event(
        &self,
        pod: &Pod,
        container: &str,
        event_type: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.objects.event(PodEvent {
            pod: pod.clone(),
            field_path: Some(spec::field_path(pod, container)),
            event_type,
            reason,
            message,
        });
    }
}

/// An error with all its causes, for the one line that a person reads.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
