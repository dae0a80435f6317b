//! A client for the Container Runtime Interface, v1, on a unix socket.
//!
//! Every call has a deadline and an error that names the operation and the
//! object. It deliberately has no opinion about pods: no retries, no caching, no
//! conversion from Kubernetes types. Deciding what to call is `agent-core`'s
//! part, turning decisions into requests is the agent's.

mod client;
mod error;

pub use client::{CriClient, EventStream, ExecStreams};
pub use error::{CriError, Refusal};

/// The wire types, generated from `proto/cri.proto`.
#[allow(
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}
