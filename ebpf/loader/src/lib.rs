//! Puts Seaway's eBPF programs into the kernel and keeps their maps.
//!
//! ```text
//! DesiredState ── render ──► Rendered ── plan ──► map updates
//! ```
//!
//! What survives a restart lies pinned under one directory of a bpffs: `maps/` and
//! `links/`. A new process adopts the maps, loads its own programs against them and
//! swaps them into the pinned links, so no socket ever finds a gap. Links are made or
//! taken over only when the maps they lead to have been filled. Nothing is detached
//! when the process ends; only [`remove_all`] does that. What another version has left goes
//! once this one's programs are attached, beside the directory when the caller says so.
//!
//! It deliberately knows nothing of Kubernetes, does not decide when to write, and
//! spawns no task: the caller runs [`EbpfLogs::run`] where it wants to.
//! Cluster IPs of IPv4 are served so far; [`unsupported`] names all other frontends.

mod backend;
mod bpffs;
mod cgroup;
mod error;
mod links;
mod logs;
mod look;
mod maps;
mod object;
mod pins;
mod removal;
mod render;
mod sys;
mod table;

pub use backend::{EbpfBackend, Options, ProgramStats};
pub use error::Error;
pub use logs::EbpfLogs;
pub use look::{look, wanted};
pub use removal::{remove_all, remove_other_versions};
pub use render::{Rendered, Unsupported, UnsupportedReason, unsupported};
