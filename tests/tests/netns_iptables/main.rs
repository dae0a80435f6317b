//! The iptables backend on the real kernel, with both flavours and real packets.

#![allow(clippy::unwrap_used, reason = "tests")]

mod affinity;
mod associations;
mod datagrams;
mod depth;
mod dual;
mod flows;
mod guards;
mod lacking;
mod node;
mod objects;
mod passage;
mod read_only;
mod reports;
mod reports_flows;
mod reports_tcp;
mod rules;
mod sctp;
mod sets;
mod strangers;
mod traffic;
mod udp;
