//! `seaway-cni repair` and `seaway-cni sweep`: what others flush comes back, what dead
//! pods leave goes, and nothing that lives is touched. The oracles are packets, `ip -j`,
//! `nft` and iptables.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "shared with a larger suite")]
#[path = "../netns_cni/node.rs"]
mod node;

mod alive;
mod networks;
mod repair;
mod routes;
mod settings;
mod sweep;
mod verbs;
