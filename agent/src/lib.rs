//! The node agent: a slim kubelet.
//!
//! ```text
//! API server ──► api ─┐                    ┌─► containerd (CRI)
//!                     ├─► objects ─► pods ─┤
//! directory ──► standalone                 └─► volumes
//!                     │
//!                     └─► seaway-proxy, in this process (standalone only)
//! ```
//!
//! It runs the pods that a source of objects assigns to this node, reports their
//! status back to that source and, against an API server, keeps the Node object and
//! its Lease alive and serves the kubelet's HTTPS API.
//!
//! It deliberately does not program Services or pod networks (`seaway-proxy` and
//! `seaway-cni` do), does not schedule, and invents no control plane: a directory of
//! manifests serves one machine. Decisions about a pod's life are in `seaway-agent-core`.

pub mod api;
pub mod app;
pub mod args;
pub mod cni_cache;
pub mod config;
pub mod events;
pub mod get;
pub mod local;
pub mod lock;
pub mod logs;
pub mod node;
pub mod objects;
pub mod pods;
pub mod runtime_status;
pub mod server;
pub mod standalone;
pub mod volumes;
