//! Seaway's own nftables table, written by netlink.
//!
//! What must be in netfilter whichever proxy runs: today the masquerade of pod
//! traffic that leaves the cluster. It lives in a table of its own, `seaway`,
//! one per family, so nobody else's rules are read or changed, and a
//! `cleanup` is the removal of one object.
//!
//! ```text
//! Masquerade ─► Ruleset ─► messages ─► one nfnetlink transaction
//!     pure        pure       pure        all or nothing
//! ```
//!
//! Each feature owns whole chains and replaces all of its rules at once. Every
//! rule carries a comment with a hash of what it was made from and its place,
//! so [`Firewall`] sees without interpreting expressions whether the kernel
//! holds what is wanted.
//!
//! What it deliberately leaves out: running `nft`, sets and maps, anybody else's tables,
//! and (until hostPorts need it) accepting forwarded packets: an accept here
//! does not override a drop in another table.

mod attributes;
mod firewall;
mod masquerade;
mod message;
mod ruleset;

pub use firewall::{Change, Firewall, FirewallError};
pub use masquerade::Masquerade;
pub use seaway_netlink::Family;

/// Name of our table, in each family.
pub const TABLE: &str = "seaway";
