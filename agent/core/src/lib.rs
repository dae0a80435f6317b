//! Pod decisions, free of the world they act on.
//!
//! It deliberately has no async runtime, no API client, no container runtime and no
//! clock: time, objects and observed state come in as arguments.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "json! literals read best as plain arguments"
    )
)]

pub mod admission;
pub mod backoff;
pub mod container;
pub mod dns;
pub mod env;
pub mod eviction;
pub mod expand;
pub mod fields;
#[cfg(test)]
mod fixture;
pub mod hosts;
pub mod image;
pub mod observed;
pub mod payload;
pub mod probe;
pub mod qos;
pub mod quantity;
pub mod registry;
pub mod sandbox;
pub mod security;
pub mod spec;
pub mod state;
pub mod status;
pub mod step;
pub mod support;
pub mod validate;
