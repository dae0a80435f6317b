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
mod manifest;
mod objects;
mod persist;
mod shared;
mod state;
mod validate;
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
use directory::{Content, Directory};
use objects::DirectoryObjects;
use persist::Store;
use shared::Shared;
use state::{File, State};

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
        let mut state = State::new(&config.name, allocator, store.statuses());
        state.set_node(node(&config, pod_cidr, &RuntimeStatus::default()));
        Self {
            shared: Arc::new(Shared::new(state)),
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
        let directory = Directory::watch(path)?;
        let mut known = BTreeMap::new();
        self.take(&directory.read()?, &mut known);
        info!(directory = %path.display(), files = known.len(), "Read manifests");
        loop {
            tokio::select! {
                () = directory.changed() => {}
                () = shutdown.cancelled() => return Ok(()),
            }
            match directory.read() {
                Ok(listing) => self.take(&listing, &mut known),
                Err(error) => {
                    error!(error = %Chain(&error), "Could not read manifests, what runs goes on");
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
    fn take(&self, listing: &directory::Listing, known: &mut BTreeMap<String, Content>) {
        let mut good = Vec::new();
        for (name, content) in listing {
            match content {
                Ok(content) if known.get(name) == Some(content) => {}
                Ok(content) => {
                    known.insert(name.clone(), content.clone());
                    good.extend(parse(name, content).map(|file| (name.clone(), file)));
                }
                Err(error) => error!(file = name, error, "Could not read manifest"),
            }
        }
        let gone: Vec<_> = known
            .keys()
            .filter(|name| !listing.contains_key(*name))
            .collect();
        let gone: Vec<String> = gone.into_iter().cloned().collect();
        known.retain(|name, _content| listing.contains_key(name));
        self.shared.change(|state| {
            for (name, file) in good {
                info!(file = name, objects = file.objects.len(), "Took manifest");
                state.set_file(&name, file);
            }
            for name in gone {
                info!(file = name, "Manifest is gone");
                state.remove_file(&name);
            }
        });
    }
}

fn parse(name: &str, content: &Content) -> Option<File> {
    match manifest::parse(&content.text) {
        Ok(objects) => Some(File {
            objects,
            modified: content.modified,
        }),
        Err(problem) => {
            let problem = format!("{name}: {problem}");
            error!(problem, "Invalid manifest, its last valid version goes on");
            None
        }
    }
}

fn node(config: &NodeConfig, pod_cidr: Ipv4Network, runtime: &RuntimeStatus) -> Node {
    let (facts, now) = (Facts::read(&config.root_dir), Timestamp::now());
    let inputs = Inputs {
        config,
        port: None,
        facts: &facts,
        runtime,
        pressure: PressureMemory::default().observe(&facts, now),
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
        Listing {
            pods: all(&snapshot.pods),
            services: all(&snapshot.services),
            endpoint_slices: Some(all(&snapshot.slices)),
        }
    }
}

#[cfg(test)]
mod tests;
