//! The eBPF data plane against the kernel: real sockets, maps, pins and links.
//!
//! Each test runs in a process of its own with its own network namespace, BPF file
//! system and cgroup, so that the programs see its sockets and no others.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod desired;
mod lifecycle;
mod sandbox;
mod scale;
mod setup;
mod traffic;

/// Declares a test that runs inside a [`sandbox::Sandbox`].
macro_rules! sandboxed {
    (fn $name:ident($sandbox:ident) $body:block) => {
        #[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            crate::sandbox::run(name, |$sandbox: &crate::sandbox::Sandbox| $body);
        }
    };
}
use sandboxed;
