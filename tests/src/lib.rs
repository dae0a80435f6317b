//! The test bed: places to run the real programs in, and oracles that are not our code.
//!
//! From small to large: a network namespace ([`Netns`]) with private mounts ([`PrivateMounts`])
//! and a cgroup of its own ([`Cgroup2`]); peers that answer with their name ([`peer`]); a node
//! made of containerd, our agent, CNI plugin and proxy; a cluster; a virtual machine.
//! The suites that use them are in `tests/tests/`, their file names tell what they need:
//! `repo_` nothing, `netns_` and `bpf_` root, `node_` containerd, `cluster_` the programs
//! that `cargo xtask setup` builds, `vm_` QEMU.
//!
//! It deliberately does not use any of our own crates, so that it cannot repeat their
//! mistakes, and no async runtime, since a namespace belongs to a thread.
//! Nothing in here gives a way out of the namespaces that it makes.

#![allow(
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be set up fails the test by a panic that says why"
)]

mod bin;
pub mod cases;
mod cgroup;
pub mod cluster;
pub mod fake_api;
pub mod images;
mod join;
mod mounts;
mod netns;
pub mod node;
mod offload;
pub mod peer;
mod privilege;
mod program;
pub mod rtnl;
pub mod snapshot;
mod sweep;
mod topology;
mod uts;
pub mod vm;
mod wait;

pub use bin::{bin, cache_dir, cargo};
pub use cgroup::{Cgroup2, cgroup2_mount};
pub use join::Join;
pub use mounts::PrivateMounts;
pub use netns::{Netns, connect, temporary, unique_name};
pub use privilege::{require_root, skip, strace_is_missing};
pub use program::write_program;
pub use topology::{Network, Topology};
pub use uts::uts_namespace;
pub use wait::{XTABLES_WAIT, once_more, short_or_long, uninterrupted, wait_until};
