//! The service proxy's decisions, free of the world they act on.
//!
//! ```text
//! k8s objects ── ingest ──► model ── compile ──► DesiredState ──► Backend
//!                   └──────────┴──► Skipped {object, field, reason}
//!  all of these, and one address ── explain ──► Explanation, for a person
//! ```
//!
//! Everything here is a plain function of its arguments: no `async` runtime,
//! no Kubernetes client, no clock, no environment. It deliberately knows nothing
//! of how a kernel data plane looks; the backends know nothing of Kubernetes.

pub mod backend;
pub mod compile;
pub mod desired;
pub mod explain;
#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "interpret")]
pub mod flows;
pub mod ingest;
#[cfg(feature = "interpret")]
pub mod interpret;
pub mod model;
pub mod node;
pub mod skipped;
pub mod sync;

pub use compile::{Compiled, Compiler, compile};
pub use explain::explain;
pub use model::Model;
pub use node::Node;
pub use skipped::{ObjectKey, Skipped};
pub use sync::{SyncError, SyncReport, fingerprint, sync_once};
