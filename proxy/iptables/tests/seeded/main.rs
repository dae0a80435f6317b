//! The rules against the table of flows, and against what the table does not say; and faults
//! that render could have, put into its rules on purpose, each of which has to be noticed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod faults;
mod rules;
mod scale;
