//! The iptables backend on the real kernel, with both flavours and real packets.

#![allow(clippy::unwrap_used, reason = "tests")]

mod affinity;
mod flows;
mod node;
mod passage;
mod rules;
mod traffic;
mod udp;
