//! Lets aya copy the types into and out of maps.
#![allow(unsafe_code, reason = "aya::Pod is an unsafe marker trait")]

use crate::{FrontendKey, ReverseKey, Service, Slot, SlotKey, Virtual};

// SAFETY: `#[repr(C)]`, integers only, no implicit padding (sizes are asserted), so
// every byte is initialised and every bit pattern is valid.
unsafe impl aya::Pod for FrontendKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Service {}
// SAFETY: as above.
unsafe impl aya::Pod for SlotKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Slot {}
// SAFETY: as above.
unsafe impl aya::Pod for ReverseKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Virtual {}
