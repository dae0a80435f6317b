//! The pod network between nodes: real devices, routes, masquerade and packets.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod carrier;
mod cases;
mod checksums;
mod direct;
mod drift;
mod fabric;
mod foreign;
mod live;
mod net;
mod overlay;
mod traffic;
