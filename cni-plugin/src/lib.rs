//! Seaway's CNI plugin: gives a pod an interface, an address and routes.
//!
//! One process per call of the container runtime: environment and stdin in,
//! one JSON result or error on stdout out (CNI specification 1.1.0; every
//! version from 0.3.0 on is answered in its own form). Called under the name
//! `loopback` it is the loopback plugin that containerd insists on.
//!
//! ```text
//! args ─┐                ┌─ ipam: reserve ─┐
//!       ├─► verb ─► plan ┼─ attach: veth ──┼─► result
//! config┘       (pure)   └─ undo on failure┘
//! ```
//!
//! Each verb is a file of its own. `ADD` is a pure plan whose steps each leave
//! an undo behind; `DEL` needs nothing but the container id and the interface
//! name, and is repeatable. What the node keeps is one file per address under
//! the run folder; see [`ipam`].
//!
//! Two more verbs are for the node's daemon: `repair` writes again what others
//! have flushed from the firewall, and `sweep` releases what dead pods left.
//!
//! What it deliberately leaves out: talking to the API server or to any daemon, an async
//! runtime, and routes between nodes and masquerade (the pod network's).

mod about;
mod add;
mod args;
mod attach;
mod check;
mod config;
mod del;
mod delegate;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gc;
mod hostports;
pub mod ipam;
mod loopback;
mod plan;
#[cfg(test)]
mod props;
mod repair;
mod result;
mod run;
mod runtime;
mod status;
mod sweep;
mod sysctl;
mod undo;
mod upkeep;
mod version;

pub use args::Environment;
pub use run::run;
pub use upkeep::upkeep;
