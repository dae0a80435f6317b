//! The contract between the eBPF programs and their loader.
//!
//! Map keys and values, map names, capacities, counter numbers, and the version
//! of all that. Both sides compile this crate, so the layouts cannot drift apart.
//!
//! It deliberately holds no behaviour beyond byte order, no Kubernetes notion and
//! nothing that a BPF verifier would have to understand: only `#[repr(C)]` structs
//! of fixed-width integers with explicit padding. Whoever changes a layout, a map's
//! meaning or a capacity raises [`LAYOUT_VERSION`], which is part of the pin path.
//!
//! # How a lookup works
//!
//! ```text
//! SERVICES  {address, port, protocol} ─► {set, count}
//! SLOTS     {set, index < count}      ─► {address, port}
//! ```
//!
//! A set of endpoints never changes once a service names it. A service moves to
//! other endpoints by one update that names another, complete set; the old one is
//! deleted afterwards. Values repeat what they were looked up by, because the
//! kernel may reuse the memory of a deleted entry while a program still reads it.
#![no_std]

pub mod counter;
mod types;
#[cfg(feature = "user")]
mod user;

pub use types::{Be16, Be32, FrontendKey, ReverseKey, Service, Slot, SlotKey, Virtual};

/// Version of everything in this crate that the kernel keeps across restarts.
pub const LAYOUT_VERSION: u32 = 1;

/// Name of the hash map [`FrontendKey`] → [`Service`].
pub const SERVICES: &str = "SERVICES";
/// Name of the hash map [`SlotKey`] → [`Slot`].
pub const SLOTS: &str = "SLOTS";
/// Name of the LRU map [`ReverseKey`] → [`Virtual`] of TCP sockets.
pub const REVERSE_TCP: &str = "REVERSE_TCP";
/// Name of the LRU map [`ReverseKey`] → [`Virtual`] of UDP sockets.
pub const REVERSE_UDP: &str = "REVERSE_UDP";
/// Name of the per-CPU array of `u64`, indexed by the numbers in [`counter`].
pub const COUNTERS: &str = "COUNTERS";

/// Frontends: 10,000 Services with a few ports and addresses each. Memory is
/// taken per entry, so head-room is free.
pub const SERVICES_CAPACITY: u32 = 65_536;
/// Endpoint slots: 10,000 Services with 10 endpoints, doubled because old and new
/// sets exist side by side while services move. Memory is taken per entry.
pub const SLOTS_CAPACITY: u32 = 262_144;
/// Connected sockets whose peer is remembered. Preallocated, about 5 MiB.
pub const REVERSE_CAPACITY: u32 = 65_536;

/// `IPPROTO_TCP`, from `linux/in.h`.
pub const PROTO_TCP: u8 = 6;
/// `IPPROTO_UDP`, from `linux/in.h`.
pub const PROTO_UDP: u8 = 17;
/// `IPPROTO_MPTCP`, from `linux/in.h`; looked up as TCP. Too wide for a byte.
pub const PROTO_MPTCP: u32 = 262;

/// Names of the programs, which are also the names of their pinned links.
pub const PROGRAMS: [&str; 8] = [
    "connect4",
    "connect6",
    "getpeername4",
    "getpeername6",
    "recvmsg4",
    "recvmsg6",
    "sendmsg4",
    "sendmsg6",
];
