//! Kernel switches: read first, written only on difference.
//!
//! What they mean is in ip-sysctl of the kernel documentation. All are per network
//! namespace.

use std::fs;
use std::io;
use std::path::Path;

use seaway_netlink::Family;

use crate::Desired;
use crate::apply::PodNetworkError;

/// Whether packets that are not for this node are passed on; 0 or 1.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// The same for IPv6. 1 makes the node a router, which forgets what other routers have
/// told it, unless `accept_ra` is 2.
const IPV6_FORWARD: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
/// Where the switches of one link are.
const IPV4_CONF: &str = "/proc/sys/net/ipv4/conf";
const IPV6_CONF: &str = "/proc/sys/net/ipv6/conf";

/// Makes the node pass packets on, for the families of its pods. Links named in
/// `advertised` keep the routes that they have from router advertisements.
///
/// Returns whether anything was written.
pub(crate) fn forwarding(want: &Desired, advertised: &[String]) -> Result<bool, PodNetworkError> {
    let mut wrote = false;
    if want.has_pods_of(Family::V4) {
        wrote |= ensure(IP_FORWARD, "1")?;
    }
    if want.has_pods_of(Family::V6) {
        for link in advertised {
            let path = format!("{IPV6_CONF}/{link}/accept_ra");
            if read(&path)?.as_deref() == Some("1") {
                wrote |= ensure(&path, "2")?;
            }
        }
        wrote |= ensure(IPV6_FORWARD, "1")?;
    }
    Ok(wrote)
}

/// Of the overlay's device: no router advertisements, IPv6 only on if pods have it.
///
/// Returns whether anything was written.
pub(crate) fn overlay_device(name: &str, want: &Desired) -> Result<bool, PodNetworkError> {
    let mut wrote = ensure_if_there(&format!("{IPV6_CONF}/{name}/accept_ra"), "0")?;
    if want.has_pods_of(Family::V6) {
        wrote |= ensure(&format!("{IPV6_CONF}/{name}/disable_ipv6"), "0")?;
    }
    if want.has_pods_of(Family::V4) {
        // A host may have it off for new links although it forwards.
        wrote |= ensure(&format!("{IPV4_CONF}/{name}/forwarding"), "1")?;
    }
    Ok(wrote)
}

/// Makes the source check of a link loose (2) where it is strict (1), so that packets may
/// come by another link than the one that leads to their source.
///
/// Returns whether anything was written.
pub(crate) fn loose_source_check(link: &str) -> Result<bool, PodNetworkError> {
    let path = format!("{IPV4_CONF}/{link}/rp_filter");
    // What counts is the greater one of the link's and that of all.
    let values = [read(&format!("{IPV4_CONF}/all/rp_filter"))?, read(&path)?];
    let any = |wanted: &str| values.iter().any(|v| v.as_deref() == Some(wanted));
    if any("1") && !any("2") {
        return ensure(&path, "2");
    }
    Ok(false)
}

/// Makes the switch at `path` hold `value`; tells whether it wrote.
fn ensure(path: &str, value: &str) -> Result<bool, PodNetworkError> {
    if read(path)?.as_deref() == Some(value) {
        return Ok(false);
    }
    fs::write(path, value).map_err(failed(path))?;
    Ok(true)
}

/// As [`ensure`]; without IPv6 in the kernel there is no such switch, nor need for it.
fn ensure_if_there(path: &str, value: &str) -> Result<bool, PodNetworkError> {
    if Path::new(path).exists() {
        ensure(path, value)
    } else {
        Ok(false)
    }
}

fn read(path: &str) -> Result<Option<String>, PodNetworkError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

fn failed(path: &str) -> impl FnOnce(io::Error) -> PodNetworkError {
    move |source| PodNetworkError::Sysctl {
        path: path.to_owned(),
        source,
    }
}
