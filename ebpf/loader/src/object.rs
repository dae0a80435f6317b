//! The compiled programs.

use crate::Error;

/// As built by the build script; empty when it was told to skip them.
static PROGRAMS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/programs.o"));

/// The object file.
pub(crate) fn programs() -> Result<&'static [u8], Error> {
    if PROGRAMS.is_empty() {
        Err(Error::NotBuilt)
    } else {
        Ok(PROGRAMS)
    }
}
