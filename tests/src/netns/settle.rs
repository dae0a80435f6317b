//! IPv6 addresses that work once they are set.

use std::time::{Duration, Instant};

use super::Netns;
use crate::sweep;

/// Far longer than the kernel's job takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the addresses that `ip ARGS` has set receive packets.
///
/// The kernel makes the local route of an IPv6 address in a deferred job, even without
/// duplicate address detection; what is sent to the address until then is lost.
pub(super) fn settle(netns: &Netns, args: &str) {
    let words: Vec<&str> = args.split_whitespace().collect();
    let device = match words.as_slice() {
        ["addr" | "address", "add", address, "dev", device, ..] if address.contains(':') => device,
        ["link", "set", "dev", device, .., "up"] | ["link", "set", device, "up"] => device,
        _ => return,
    };
    if !has_address_v6(netns, device) {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !is_settled(netns, device) {
        sweep::pause(Duration::from_millis(2));
    }
}

/// A file costs less than a process, and most links have none.
fn has_address_v6(netns: &Netns, device: &str) -> bool {
    let addresses = netns.enter(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6"));
    // Address, link, prefix, scope, flags, name; of a global address the scope is 00. A kernel
    // without IPv6 has no such file.
    addresses.unwrap_or_default().lines().any(|line| {
        let mut words = line.split_whitespace().skip(3);
        words.next() == Some("00") && words.nth(1) == Some(device)
    })
}

fn is_settled(netns: &Netns, device: &str) -> bool {
    let link = &netns.ip_json(&format!("-6 addr show dev {device}"))[0];
    let flags = link["flags"].as_array().into_iter().flatten();
    if !flags.into_iter().any(|flag| flag == "UP") {
        return true;
    }
    // Those that the kernel still looks for duplicates of are the test's own choice.
    let addresses = link["addr_info"].as_array().into_iter().flatten();
    let mut set = addresses
        .filter(|a| a["scope"] == "global" && a["tentative"] != true)
        .filter_map(|a| a["local"].as_str())
        .peekable();
    if set.peek().is_none() {
        return true;
    }
    let routes = netns.ip(&format!("-6 route show table local dev {device}"));
    set.all(|address| {
        routes.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("local") && words.next() == Some(address)
        })
    })
}
