//! The real seaway-cni binary, called as a container runtime calls it; the
//! oracles are `ip -j` and packets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod add;
mod burst;
mod capabilities;
mod cases;
mod chain;
mod contested;
mod crowd;
mod damage;
mod del;
mod delegate;
mod dhcp;
mod dual;
mod failures;
mod forwarding;
mod full;
mod gc;
mod hostports;
mod kernel;
mod killed;
mod loopback;
mod node;
mod overlap;
mod parts;
mod protocol;
mod refused;
mod runtimes;
mod sctp;
mod sends;
mod stopped;
mod trace;
mod twice;
