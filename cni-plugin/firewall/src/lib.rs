//! Seaway's own nftables table, written by netlink.
//!
//! What must be in netfilter whichever proxy runs: the masquerade of pod
//! traffic that leaves the cluster, and hostPorts. It lives in a table of its
//! own, `seaway`, one per family, so nobody else's rules are changed, and a
//! `cleanup` is the removal of one object.
//!
//! ```text
//! Masquerade ─┐
//! HostPort   ─┴► Ruleset ─► messages ─► one nfnetlink transaction
//!     pure        pure       pure        all or nothing
//! ```
//!
//! A packet meets three rules however many hostPorts there are: they are the
//! elements of maps, keyed by address, protocol and port, and each is told by
//! the pod that it leads to.
//!
//! Each feature owns whole chains and replaces all of its rules at once. Every
//! rule carries a comment with a hash of what it was made from and its place,
//! so [`Firewall`] sees without interpreting expressions whether the kernel
//! holds what is wanted.
//!
//! The one exception is [`Firewall::ensure_forward_accept`]: an accept in our
//! table does not override a drop in another one.
//!
//! Others may flush what is ours at any time. [`Watch`] hears of it, and two
//! looks at [`Firewall::state`] tell what was lost; writing it again is for who
//! knows what should be there.
//!
//! What it deliberately leaves out: running `nft` or `iptables`, but for
//! iptables-legacy, which has no other interface.

mod attributes;
mod conntrack;
mod expression;
mod fate;
mod firewall;
mod foreign;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hostports;
mod legacy;
mod listing;
mod masquerade;
mod message;
mod passage;
mod ports;
mod removal;
mod restore;
mod ruleset;
mod set;
mod state;
mod watch;

pub use firewall::{Change, Firewall, FirewallError};
pub use foreign::ForeignDrop;
pub use hostports::{HostPort, Protocol};
pub use masquerade::Masquerade;
pub use restore::Restored;
pub use seaway_netlink::Family;
pub use state::{Lost, State};
pub use watch::{Changed, Heard, Noticed, Watch};

/// Name of our table, in each family.
pub const TABLE: &str = "seaway";
