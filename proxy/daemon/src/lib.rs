//! The node's daemon: watches in, kernel state out.
//!
//! Two halves, each of which can be off. The service proxy turns Services and
//! EndpointSlices into what one of the backends programs; the pod network turns
//! Nodes into routes and masquerade, and writes the CNI conf when all is in place.
//!
//! ```text
//!  Sources ──► Feed (proxy-core's Model) ──► SyncLoop ──► ebpf-loader | proxy-iptables
//!     └──────► Nodes ──► PodNetworkLoop ──► podnet; ConfKeeper ──► CNI conf
//!                          └─► Prober ─┘ which paths are direct
//!                └─► Health ◄─ both loops        run(): the tree of tasks
//!                       └──► HealthChecks ◄─ what SyncLoop has programmed
//!  explain, status ──► Desk ──► SyncLoop: what is, for a person who asks
//!  Events ◄─ what an operator should see at the object
//!  nftables' changes ──► Upkeep ──► PodNetworkLoop, seaway-cni repair, seaway-cni sweep
//! ```
//!
//! [`run`] is the whole daemon without a process around it: the binary feeds it
//! from an API server, the agent's standalone mode from a directory. [`install`] comes
//! before it and puts the CNI plugin in its place.
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
mod conf_keeper;
mod config;
mod config_file;
mod conntrack;
mod events;
mod explain;
mod foreign_confs;
mod foreign_firewall;
mod health;
mod health_checks;
mod install;
mod metrics;
mod nodes;
mod outage;
mod pod_network;
mod proc_sys;
mod run;
mod service_proxy;
mod sources;
mod upkeep;

pub use app::main;
pub use cleanup::cleanup;
pub use client::api_client;
pub use config::{
    Config, ConntrackConfig, DetectLocal, POD_INTERFACES, PodNetworkConfig, ServiceProxy,
    ServicesConfig, SyncConfig, UpkeepConfig,
};
pub use install::{HostConfig, Install, Installed, install, uninstall};
pub use run::run;
pub use seaway_podnet::{PodRoutes, Settings as PodNetworkSettings};
pub use sources::{Sources, WatchResult, lasting_watch, services};
