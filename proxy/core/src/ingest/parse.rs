//! Values as the API spells them.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

use crate::desired::Protocol;
use crate::skipped::SkipReason;

/// An IP address; leading zeros are decimal, as old objects in etcd have them
/// (`172.30.0.041` is 172.30.0.41), and v4-mapped IPv6 is IPv4.
pub(super) fn address(text: &str) -> Result<IpAddr, SkipReason> {
    let strict = text.parse::<IpAddr>().ok().map(|addr| addr.to_canonical());
    strict
        .or_else(|| sloppy_v4(text).map(IpAddr::V4))
        .ok_or_else(|| SkipReason::BadAddress {
            value: text.to_owned(),
        })
}

fn sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// A network; leading zeros and space around it are let pass as in [`address`],
/// host bits are cleared.
pub(super) fn network(text: &str) -> Result<IpNetwork, SkipReason> {
    let bad = || SkipReason::BadNetwork {
        value: text.to_owned(),
    };
    let (addr, prefix) = text.trim().split_once('/').ok_or_else(bad)?;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let (Ok(addr), Ok(prefix)) = (address(addr), prefix.parse()) else {
        return Err(bad());
    };
    let network = IpNetwork::new(addr, prefix).ok().ok_or_else(bad)?;
    IpNetwork::new(network.network(), prefix)
        .ok()
        .ok_or_else(bad)
}

pub(super) fn port(number: i32) -> Result<u16, SkipReason> {
    match u16::try_from(number) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(SkipReason::BadPort { value: number }),
    }
}

/// Absent means TCP: the API server fills it in, hand-written objects need not.
pub(super) fn protocol(text: Option<&str>) -> Result<Protocol, SkipReason> {
    match text {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => Err(SkipReason::UnknownProtocol {
            value: other.to_owned(),
        }),
    }
}

/// Refuses what the API server refuses too: an address that means "this host"
/// or "this link" would mean something else on every node. Objects written
/// before that validation existed can still hold one.
pub(super) fn routable(addr: IpAddr) -> Result<IpAddr, SkipReason> {
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let what = if addr.is_unspecified() {
        "unspecified"
    } else if addr.is_loopback() {
        "loopback"
    } else if addr.is_multicast() {
        "multicast"
    } else if link_local {
        "link-local"
    } else {
        return Ok(addr);
    };
    Err(SkipReason::ForbiddenAddress {
        value: addr.to_string(),
        what,
    })
}
