//! One range of addresses, of either family, as numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::SpecialRange;

/// What a configuration says of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSpec {
    /// The subnet; host bits are ignored.
    pub subnet: IpNetwork,
    /// The first address for a pod, where not the one behind the node's.
    pub start: Option<IpAddr>,
    /// The last address for a pod, where not the last one.
    pub end: Option<IpAddr>,
}

/// Addresses from `start` to `end`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) network: IpNetwork,
    pub(super) start: u128,
    pub(super) end: u128,
}

impl RangeSpec {
    /// A whole subnet.
    pub fn whole(subnet: IpNetwork) -> Self {
        Self {
            subnet,
            start: None,
            end: None,
        }
    }
}

impl RangeSpec {
    /// Refuses a subnet that touches addresses with a meaning of their own.
    pub(crate) fn refuse_special(&self) -> Result<(), String> {
        match SpecialRange::touched_by(self.subnet) {
            Some(special) => Err(format!("{} touches {special}", self.subnet)),
            None => Ok(()),
        }
    }
}

impl Range {
    /// The first two addresses and IPv4's broadcast address are never a pod's.
    pub(super) fn new(spec: &RangeSpec) -> Result<Self, String> {
        let subnet = spec.subnet;
        let network = IpNetwork::new(subnet.network(), subnet.prefix())
            .map_err(|error| format!("{subnet}: {error}"))?;
        let (low, high) = bounds(network).ok_or_else(|| {
            let smallest = if network.is_ipv4() { "/30" } else { "/126" };
            format!("{subnet} has no address for a pod, the smallest is a {smallest}")
        })?;
        let within = |what: &str, ip: Option<IpAddr>, default| match ip {
            None => Ok(default),
            Some(ip) if ip.is_ipv4() == network.is_ipv4() => {
                let number = number(ip);
                if (low..=high).contains(&number) {
                    Ok(number)
                } else {
                    Err(format!("{what} {ip} is no address for a pod in {subnet}"))
                }
            }
            Some(ip) => Err(format!("{what} {ip} is not of the family of {subnet}")),
        };
        let start = within("rangeStart", spec.start, low)?;
        let end = within("rangeEnd", spec.end, high)?;
        if start > end {
            return Err(format!("{subnet}: rangeStart is behind rangeEnd"));
        }
        Ok(Self {
            network,
            start,
            end,
        })
    }

    pub(super) fn size(&self) -> u128 {
        (self.end - self.start).saturating_add(1)
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.network.is_ipv4() && (self.start..=self.end).contains(&number(ip))
    }

    pub(super) fn address(&self, number: u128) -> IpAddr {
        address(number, self.network.is_ipv4())
    }
}

/// First and last address that pods can get in the whole subnet. The node's
/// own is the first one behind the subnet's (in IPv6 that one is any router's,
/// RFC 4291 section 2.6.1).
fn bounds(network: IpNetwork) -> Option<(u128, u128)> {
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let host_bits = u32::from(bits - network.prefix());
    let first = number(network.network());
    let all = 1u128.checked_shl(host_bits).map_or(u128::MAX, |n| n - 1);
    let last = first.checked_add(all)?;
    let low = first.checked_add(2)?;
    let high = last.checked_sub(u128::from(network.is_ipv4()))?;
    (low <= high && host_bits >= 2).then_some((low, high))
}

pub(super) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(number: u128, v4: bool) -> IpAddr {
    if v4 {
        let number = u32::try_from(number).expect("within an IPv4 range");
        Ipv4Addr::from(number).into()
    } else {
        Ipv6Addr::from(number).into()
    }
}
