//! Pod decisions, free of the world they act on.
//!
//! It deliberately has no async runtime, no API client, no container runtime and no
//! clock: time, objects and observed state come in as arguments.

pub mod fields;
pub mod payload;
pub mod quantity;
