//! The directory as a source of objects: no control plane, one machine.
//!
//! ```text
//! files ─► manifest (parse, defaults, check) ─┐
//! statuses of pods ───────────────────────────┼─► state ─► snapshot ─► watch events
//! runtime status ─► Node ─────────────────────┘     │        pods, and the proxy's
//!                                                   └─► addresses, endpoints
//! ```
//!
//! A file that is wrong changes nothing: its last good version goes on running. A pod
//! whose content changes is another pod; the old one ends first. There are no service
//! accounts, no scheduler and no controllers here, deliberately.

mod cluster_ip;
mod defaults;
mod directory;
mod endpoints;
mod files;
mod manifest;
mod objects;
mod persist;
mod shared;
mod state;
mod validate;
mod warnings;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ipnetwork::Ipv4Network;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod};
use tokio::sync::watch as tokio_watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::api::Watch;
use crate::api::error::Chain;
use crate::config::NodeConfig;
use crate::events::EventSink;
use crate::local::{Listing, LocalSource};
use crate::node::{Facts, Inputs, PressureMemory, initial_node, node_status};
use crate::objects::Objects;
use crate::runtime_status::RuntimeStatus;
use cluster_ip::Allocator;
pub use directory::DirectoryError;
use directory::{Directory, Found};
use files::File;
use objects::DirectoryObjects;
use persist::Store;
use shared::Shared;
use state::State;

/// A directory of manifests, followed.
#[derive(Debug)]
pub struct Standalone {
    shared: Arc<Shared>,
    store: Store,
    config: NodeConfig,
    pod_cidr: Ipv4Network,
}

impl Standalone {
    /// With what earlier runs have left in the configured directories.
    pub fn new(config: NodeConfig, pod_cidr: Ipv4Network, service_cidr: Ipv4Network) -> Self {
        let store = Store::new(&config.root_dir, &config.run_dir);
        let allocator = Allocator::new(service_cidr, store.cluster_ips());
        let mut state = State::new(&config.name, allocator, store.restored());
        state.set_node(node(&config, pod_cidr, &RuntimeStatus::default()));
        Self {
            shared: Arc::new(Shared::new(state, store.clone())),
            store,
            config,
            pod_cidr,
        }
    }

    /// For the pod workers.
    pub fn objects(&self, events: EventSink) -> Arc<dyn Objects> {
        Arc::new(DirectoryObjects {
            shared: Arc::clone(&self.shared),
            events,
        })
    }

    /// The pods to run; the stream begins when the directory has been read.
    pub fn pods(&self) -> Watch<Pod> {
        watch::events(self.shared.subscribe(), |snapshot| &snapshot.pods)
    }

    /// For the proxy in this process.
    pub fn proxy_sources(&self) -> seaway_proxy::Sources {
        let subscribe = || self.shared.subscribe();
        seaway_proxy::Sources {
            services: watch::events(subscribe(), |snapshot| &snapshot.services),
            endpoint_slices: watch::events(subscribe(), |snapshot| &snapshot.slices),
            nodes: watch::events(subscribe(), |snapshot| &snapshot.nodes),
        }
    }

    /// For `seaway-agent get`.
    pub fn local_source(&self) -> Arc<dyn LocalSource> {
        Arc::clone(&self.shared) as Arc<dyn LocalSource>
    }

    /// Follows the directory at `path` until `shutdown`.
    ///
    /// # Errors
    /// At once, if the directory cannot be read or watched; later failures are logged
    /// and what runs goes on.
    pub async fn follow(
        &self,
        path: &Path,
        shutdown: CancellationToken,
    ) -> Result<(), DirectoryError> {
        // Watching starts before reading: nothing falls between the two.
        let mut directory = Directory::watch(path)?;
        let mut known = directory::Listing::new();
        let mut failed = String::new();
        let listing = directory.read().await?;
        self.take(&listing, &mut known);
        info!(directory = %path.display(), files = known.len(), "Read manifests");
        loop {
            let listing = tokio::select! {
                listing = async { directory.changed().await; directory.read().await } => listing,
                () = shutdown.cancelled() => return Ok(()),
            };
            match listing {
                Ok(listing) => {
                    failed.clear();
                    self.take(&listing, &mut known);
                }
                Err(error) => {
                    // Told once, not with every look.
                    let text = Chain(&error).to_string();
                    if text != failed {
                        error!(error = text, "Could not read manifests, what runs goes on");
                    }
                    failed = text;
                }
            }
        }
    }

    /// Keeps the Node's readiness current until `shutdown`.
    pub async fn keep_node(
        &self,
        mut runtime: tokio_watch::Receiver<RuntimeStatus>,
        shutdown: CancellationToken,
    ) {
        loop {
            let status = runtime.borrow_and_update().clone();
            if status.all_ready() {
                info!(node = self.config.name, "Node is ready");
            } else {
                warn!(
                    node = self.config.name,
                    why = status.message,
                    "Node is not ready"
                );
            }
            let node = node(&self.config, self.pod_cidr, &status);
            self.shared.change(|state| state.set_node(node));
            tokio::select! {
                Ok(()) = runtime.changed() => {}
                () = shutdown.cancelled() => return,
                else => return,
            }
        }
    }

    /// Saves what the next run of the agent needs, until `shutdown`.
    pub async fn keep_saved(&self, shutdown: CancellationToken) {
        tokio::select! {
            () = self.store.clone().keep(Arc::clone(&self.shared)) => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Brings the state to what is in the directory now.
    fn take(&self, listing: &directory::Listing, known: &mut BTreeMap<String, Found>) {
        let is_new = |(name, found): &(&String, &Found)| known.get(*name) != Some(found);
        let new: Vec<_> = listing.iter().filter(is_new).collect();
        let new: Vec<_> = new
            .into_iter()
            .filter_map(|(name, found)| Some((name, version(found)?)))
            .collect();
        known.clone_from(listing);
        self.shared.take_directory(|state| {
            for (name, version) in new {
                match version {
                    Ok(file) => {
                        info!(file = name, objects = file.objects.len(), "Read manifest");
                        state.files.offer(name, file);
                    }
                    Err(problem) => state.files.refuse(name, problem),
                }
            }
            for name in state.files.retain(|name| listing.contains_key(name)) {
                info!(file = name, "Manifest is gone");
            }
        });
    }
}

/// Nothing while the file is being written.
fn version(found: &Found) -> Option<Result<File, String>> {
    match found {
        Found::Content(content) => {
            let file = manifest::parse(&content.text).map(|objects| File {
                objects,
                modified: content.modified,
            });
            Some(file.map_err(|problem| problem.to_string()))
        }
        Found::Unreadable(problem) => Some(Err(problem.clone())),
        Found::Busy => None,
    }
}

fn node(config: &NodeConfig, pod_cidr: Ipv4Network, runtime: &RuntimeStatus) -> Node {
    let (facts, now) = (Facts::read(&config.root_dir), Timestamp::now());
    let inputs = Inputs {
        config,
        port: None,
        facts: &facts,
        runtime,
        pressure: PressureMemory::default().observe(&facts, config.eviction_hard, now),
        now,
    };
    let mut node = initial_node(config, &[]);
    node.status = Some(node_status(
        &inputs,
        &k8s_openapi::api::core::v1::NodeStatus::default(),
    ));
    node.spec = Some(NodeSpec {
        pod_cidr: Some(pod_cidr.to_string()),
        pod_cidrs: Some(vec![pod_cidr.to_string()]),
        ..NodeSpec::default()
    });
    node
}

fn all<K: Clone>(objects: &state::Objects<K>) -> Vec<K> {
    objects.values().map(|object| K::clone(object)).collect()
}

impl LocalSource for Shared {
    fn listing(&self) -> Listing {
        let snapshot = self.snapshot();
        let mut pods = all(&snapshot.pods);
        for pod in &mut pods {
            self.warnings().explain(pod);
        }
        Listing {
            pods,
            services: all(&snapshot.services),
            endpoint_slices: Some(all(&snapshot.slices)),
            refused: self.look(|state| state.files.refusals()),
        }
    }
}

#[cfg(test)]
mod tests;
