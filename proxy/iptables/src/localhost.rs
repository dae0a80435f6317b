//! NodePorts on 127.0.0.1.

use std::fs;

use tracing::{info, warn};

/// Whether packets with a loopback address may leave by, or come in from, a
/// device: `Documentation/networking/ip-sysctl.rst`. Of the network namespace of
/// the calling thread.
const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Lets connections to 127.0.0.1 be translated to endpoints elsewhere. A failure
/// costs just these connections, so it is told and not returned.
pub(crate) fn open() {
    match fs::read_to_string(ROUTE_LOCALNET) {
        Ok(value) if value.trim() == "1" => {}
        _ => match fs::write(ROUTE_LOCALNET, "1") {
            Ok(()) => info!(
                sysctl = ROUTE_LOCALNET,
                "Set to 1 for NodePorts on 127.0.0.1"
            ),
            Err(error) => warn!(
                sysctl = ROUTE_LOCALNET,
                %error, "Cannot set to 1, NodePorts do not work on 127.0.0.1"
            ),
        },
    }
}
