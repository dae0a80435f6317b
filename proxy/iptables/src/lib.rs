//! The service proxy's iptables data plane, for kernels and users that eBPF
//! does not suit.
//!
//! ```text
//! nat    PREROUTING, OUTPUT ─► SEAWAY-SERVICES ┬► SEAWAY-ADDRESSES ─► SEAWAY-NET-… ┬► one Service port
//!                                              └► SEAWAY-NODE-PORTS ─► SEAWAY-PORTS ┘
//!        one Service port: [SEAWAY-FW- source ranges ─►] [SEAWAY-EXT- or -INT- policy, mark ─►]
//!                          SEAWAY-SVC- or -SVL- (Cluster, Local) ─► DNAT
//!        POSTROUTING ─► SEAWAY-POSTROUTING ─► SEAWAY-HAIRPIN, SEAWAY-MASQUERADE
//! filter FORWARD, INPUT, OUTPUT ─► SEAWAY-SERVICES ─► the same trees ─► REJECT, DROP
//!        FORWARD ─► SEAWAY-PROXY-FORWARD,  INPUT ─► SEAWAY-HEALTH, SEAWAY-INVALID, SEAWAY-LOCALHOST
//! ```
//!
//! The way from `SEAWAY-SERVICES` to a Service is a tree over the destination, and
//! over the port for NodePorts (see `tree`), so the first packet of a connection
//! passes a few dozen rules however many Services there are. A Service port is a
//! chain that does DNAT itself; endpoints have no chains. What is in filter meets
//! only what nat has left alone, because it looks for the original destination.
//!
//! With session affinity an endpoint does have a chain, and an ipset with the
//! clients that come back to it (see `sets`).
//!
//! IPv4 and IPv6 are two sets of tables, written by the same code.
//!
//! Rendering, parsing and comparing are pure. The kernel is written by one run
//! of `iptables-restore --noflush`, with the chains that differ and nothing else.
//!
//! A flow of UDP stays with its endpoint for as long as conntrack remembers it, so
//! what goes to an endpoint that is no more is removed there (see `conntrack`).
//!
//! That somebody else has changed our rules is noticed without reading them (see `watch`).
//!
//! Deliberately not here: which pods may be reached (network policy), forwarding
//! of what no Service concerns, and egress masquerade (the pod network's).

mod command;
mod config;
mod conntrack;
mod flavour;
mod inspect;
mod iptables;
mod lacking;
mod listing;
mod localhost;
mod render;
mod rendered;
mod save;
mod sets;
mod tree;
mod unsupported;
mod watch;

pub use command::CommandError;
pub use config::{Commands, Config};
pub use flavour::Flavour;
pub use iptables::Iptables;
pub use rendered::{Rendered, Table, Tables};
