//! The real seaway-cni binary, called as a container runtime calls it; the
//! oracles are `ip -j` and packets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod add;
mod capabilities;
mod cases;
mod del;
mod delegate;
mod dual;
mod failures;
mod gc;
mod hostports;
mod killed;
mod loopback;
mod node;
mod overlap;
mod protocol;
