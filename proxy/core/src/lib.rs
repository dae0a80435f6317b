//! The service proxy's decisions, free of the world they act on.
//!
//! ```text
//! k8s objects ── ingest ──► model ── compile ──► DesiredState ──► Backend
//! ```
//!
//! Everything here is a plain function of its arguments: no `async` runtime,
//! no Kubernetes client, no clock, no environment. It deliberately knows nothing
//! of how a kernel data plane looks; the backends know nothing of Kubernetes.

pub mod backend;
pub mod desired;
