//! The iptables backend on the real kernel, with both flavours and real packets.

#![allow(clippy::unwrap_used, reason = "tests")]

mod flows;
mod node;
mod rules;
mod traffic;
