//! The node's daemon: watches in, kernel state out.
//!
//! Two halves, each of which can be off. The service proxy turns Services and
//! EndpointSlices into what one of the backends programs; the pod network turns
//! Nodes into routes and masquerade, and writes the CNI conf when all is in place.
//!
//! ```text
//!  Sources ──► Feed (proxy-core's Model) ──► SyncLoop ──► ebpf-loader | proxy-iptables
//!     └──────► Nodes ──► PodNetworkLoop ──► podnet, CNI conf
//!                └─► Health ◄─ both loops        run(): the tree of tasks
//!                       └──► HealthChecks ◄─ what SyncLoop has programmed
//! ```
//!
//! [`run`] is the whole daemon without a process around it: the binary feeds it
//! from an API server, the agent's standalone mode from a directory.
//!
//! It deliberately does not decide what to program (proxy-core, podnet) or how (the
//! backends). Nothing is written to the kernel before the first lists are
//! complete, and nothing is taken back at the end; only [`cleanup`] does.

mod app;
pub mod args;
mod backends;
mod chain;
mod cleanup;
mod client;
mod config;
mod health;
mod health_checks;
mod metrics;
mod nodes;
mod pod_network;
mod run;
mod service_proxy;
mod sources;

pub use app::main;
pub use cleanup::cleanup;
pub use client::api_client;
pub use config::{
    Config, DetectLocal, POD_INTERFACES, PodNetworkConfig, ServiceProxy, ServicesConfig,
};
pub use run::run;
pub use sources::{Sources, WatchResult};
