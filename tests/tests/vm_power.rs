//! Power lost: whatever a node was doing, it works again after the next boot, by itself.
//!
//! The emulator is killed, so what the machine had not written to its disk is lost (what it
//! had written without flushing is not: the disk's own cache outlives this power cut).

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "vm_power/attachments.rs"]
mod attachments;

#[path = "vm_power/pods.rs"]
mod pods;

use std::time::Duration;

/// Software emulation is slow, and the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(15);
