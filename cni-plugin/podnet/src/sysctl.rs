//! Kernel switches: read first, written only on difference.

use std::fs;
use std::io;
use std::path::Path;

/// Whether packets that are not for this node are passed on; 0 or 1.
///
/// ip-sysctl of the kernel documentation. Per network namespace.
pub(crate) const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Makes the switch at `path` hold `value`; tells whether it wrote.
pub(crate) fn ensure(path: &str, value: &str) -> io::Result<bool> {
    let path = Path::new(path);
    if fs::read_to_string(path)?.trim() == value {
        return Ok(false);
    }
    fs::write(path, value)?;
    Ok(true)
}
