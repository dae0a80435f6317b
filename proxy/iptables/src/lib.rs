//! The service proxy's iptables data plane, for kernels and users that eBPF
//! does not suit.
//!
//! ```text
//! nat    PREROUTING, OUTPUT ─► SEAWAY-SERVICES ─► SEAWAY-NET-… ─► SEAWAY-SVC-… ─► DNAT
//!        POSTROUTING ────────► SEAWAY-POSTROUTING ─► SEAWAY-HAIRPIN, SEAWAY-MASQUERADE
//! filter FORWARD, OUTPUT ────► SEAWAY-SERVICES ─► SEAWAY-NET-… ─► REJECT
//! ```
//!
//! The way from `SEAWAY-SERVICES` to a Service is a tree over the destination
//! (see `tree`), so the first packet of a connection passes a few dozen rules
//! however many Services there are. A Service port is one chain that does DNAT
//! itself; endpoints have no chains.
//!
//! Rendering, parsing and comparing are pure. The kernel is written by one run
//! of `iptables-restore --noflush`, with the chains that differ and nothing else.
//!
//! Deliberately not here: IPv6 (the same code, later), which pods may be
//! reached (network policy), forwarding permissions under a default DROP
//! policy and egress masquerade (the pod network's).

mod command;
mod config;
mod flavour;
mod iptables;
mod render;
mod rendered;
mod save;
mod tree;

pub use command::CommandError;
pub use config::{Commands, Config};
pub use flavour::Flavour;
pub use iptables::Iptables;
pub use rendered::{Rendered, Table};
