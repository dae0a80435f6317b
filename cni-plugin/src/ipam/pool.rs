//! The addresses that pods can get.

use std::fmt;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;

/// One or more IPv4 ranges, in order of preference.
///
/// Of each, three addresses are never given to a pod: the network's, the
/// broadcast address, and the first one, which is the node's own in this range
/// (the source of its packets to remote pods).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    ranges: Vec<Ipv4Network>,
}

const RESERVED: u32 = 3;

impl Pool {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Text that says which range is wrong.
    pub fn new(subnets: Vec<Ipv4Network>) -> Result<Self, String> {
        if subnets.is_empty() {
            return Err("no range is given".into());
        }
        let mut ranges: Vec<Ipv4Network> = Vec::new();
        for subnet in subnets {
            let range = Ipv4Network::new(subnet.network(), subnet.prefix())
                .map_err(|error| format!("{subnet}: {error}"))?;
            if range.size() <= RESERVED {
                return Err(format!(
                    "{subnet} has no address for a pod, the smallest is a /30"
                ));
            }
            if let Some(other) = ranges.iter().find(|other| other.overlaps(range)) {
                return Err(format!("{subnet} overlaps {other}"));
            }
            ranges.push(range);
        }
        Ok(Self { ranges })
    }

    /// How many addresses pods can get.
    pub fn size(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| u64::from(range.size() - RESERVED))
            .sum()
    }

    /// Whether a pod can get this address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|range| {
            range.contains(address) && address > first(*range) && address < range.broadcast()
        })
    }

    /// The address behind which there is none.
    pub(super) fn last(&self) -> Option<Ipv4Addr> {
        self.ranges
            .last()
            .map(|range| Ipv4Addr::from(u32::from(range.broadcast()) - 1))
    }

    /// All addresses in order, from the one behind `last`; from the first one
    /// when `last` is none of them.
    pub(super) fn after(&self, last: Option<Ipv4Addr>) -> impl Iterator<Item = Ipv4Addr> {
        let last = last.filter(|address| self.contains(*address));
        let range = last
            .and_then(|address| self.ranges.iter().position(|range| range.contains(address)))
            .unwrap_or(0);
        let start = last.map_or(0, u32::from);
        self.ranges
            .iter()
            .enumerate()
            .skip(range)
            .flat_map(move |(place, network)| {
                let low = u32::from(first(*network));
                let low = if place == range { low.max(start) } else { low };
                (low + 1..u32::from(network.broadcast())).map(Ipv4Addr::from)
            })
    }
}

/// The node's own.
fn first(range: Ipv4Network) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(range.network()).saturating_add(1))
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        f.write_str(&ranges.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(ranges: &[&str]) -> Result<Pool, String> {
        Pool::new(ranges.iter().map(|range| range.parse().unwrap()).collect())
    }

    #[test]
    fn network_node_and_broadcast_addresses_are_never_given() {
        let pool = pool(&["10.0.0.0/29", "10.9.0.8/30"]).unwrap();
        let all: Vec<String> = pool.after(None).map(|ip| ip.to_string()).collect();
        assert_eq!(
            all,
            [
                "10.0.0.2",
                "10.0.0.3",
                "10.0.0.4",
                "10.0.0.5",
                "10.0.0.6",
                "10.9.0.10"
            ]
        );
        assert_eq!(pool.size(), 6);
        assert_eq!(pool.last(), pool.after(None).last());
        for ip in pool.after(None) {
            assert!(pool.contains(ip));
        }
        for no in [
            "10.0.0.0",
            "10.0.0.1",
            "10.0.0.7",
            "10.0.0.8",
            "10.9.0.9",
            "10.9.0.11",
        ] {
            assert!(!pool.contains(no.parse().unwrap()), "{no}");
        }
    }

    #[test]
    fn going_on_behind_an_address() {
        let pool = pool(&["10.0.0.0/29", "10.9.0.8/30"]).unwrap();
        let next = |ip: &str| pool.after(Some(ip.parse().unwrap())).next();
        assert_eq!(next("10.0.0.3"), Some(Ipv4Addr::new(10, 0, 0, 4)));
        assert_eq!(next("10.0.0.6"), Some(Ipv4Addr::new(10, 9, 0, 10)));
        assert_eq!(next("10.9.0.10"), None);
        assert_eq!(next("192.0.2.1"), Some(Ipv4Addr::new(10, 0, 0, 2)));
    }

    #[test]
    fn useless_ranges_are_refused() {
        for (ranges, text) in [
            (&[][..], "no range"),
            (&["10.0.0.0/31"], "10.0.0.0/31"),
            (&["10.0.0.1/32"], "10.0.0.1/32"),
            (
                &["10.0.0.0/8", "10.1.0.0/16"],
                "10.1.0.0/16 overlaps 10.0.0.0/8",
            ),
        ] {
            let error = pool(ranges).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(pool(&["10.0.0.77/24"]).unwrap().to_string(), "10.0.0.0/24");
    }
}
