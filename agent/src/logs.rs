//! Containers' logs, as the CRI runtime writes them and as `kubectl logs` asks for them.
//!
//! `line` reads the format, `select` decides which bytes a request gets (both pure),
//! `tail` finds where to begin, `follow` reads files that grow and are rotated.
//! Older, rotated files are not read, as kubelet does not read them either.

pub mod follow;
pub mod line;
pub mod select;
pub mod tail;
