//! The addresses that pods can get.

use std::fmt;
use std::net::IpAddr;

use super::range::{Range, RangeSpec, number};

/// Ranges of one family, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    ranges: Vec<Range>,
}

/// The pools of both families; a pod gets one address of each that is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pools {
    v4: Option<Pool>,
    v6: Option<Pool>,
}

impl Pools {
    /// Checks the ranges and parts them by family.
    ///
    /// # Errors
    /// Text that says which range is wrong.
    pub fn new(specs: &[RangeSpec]) -> Result<Self, String> {
        let mut pools = Self::default();
        for spec in specs {
            let range = Range::new(spec)?;
            let pool = if range.network.is_ipv4() {
                &mut pools.v4
            } else {
                &mut pools.v6
            };
            pool.get_or_insert(Pool { ranges: Vec::new() }).add(range)?;
        }
        if pools == Self::default() {
            return Err("no range is given".into());
        }
        Ok(pools)
    }

    /// IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.v4.iter().chain(&self.v6)
    }

    /// Whether a pod can get this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.iter().any(|pool| pool.contains(address))
    }

    /// Whether pods get an IPv6 address.
    pub fn has_v6(&self) -> bool {
        self.v6.is_some()
    }

    /// The same pools, but those of `other` for the families that it has.
    #[must_use]
    pub fn overridden_by(self, other: Self) -> Self {
        Self {
            v4: other.v4.or(self.v4),
            v6: other.v6.or(self.v6),
        }
    }
}

impl Pool {
    fn add(&mut self, range: Range) -> Result<(), String> {
        let overlapping = |other: &&Range| range.start <= other.end && other.start <= range.end;
        if let Some(other) = self.ranges.iter().find(overlapping) {
            return Err(format!("{} overlaps {}", range.network, other.network));
        }
        self.ranges.push(range);
        Ok(())
    }

    /// Whether this is the pool of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.ranges
            .first()
            .is_some_and(|range| range.network.is_ipv4())
    }

    /// How many addresses pods can get.
    pub fn size(&self) -> u128 {
        self.ranges
            .iter()
            .fold(0, |sum, range| range.size().saturating_add(sum))
    }

    /// Whether a pod can get this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// The address behind which there is none.
    pub(super) fn last(&self) -> Option<IpAddr> {
        self.ranges.last().map(|range| range.address(range.end))
    }

    /// All addresses in order, from the one behind `last`; from the first one
    /// when `last` is none of them.
    pub(super) fn after(&self, last: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let last = last.filter(|address| self.contains(*address));
        let range = last
            .and_then(|address| self.ranges.iter().position(|range| range.contains(address)))
            .unwrap_or(0);
        let behind = last.map(|address| number(address).saturating_add(1));
        self.ranges
            .iter()
            .enumerate()
            .skip(range)
            .flat_map(move |(place, range_here)| {
                let low = behind
                    .filter(|_| place == range)
                    .unwrap_or(range_here.start);
                (low..=range_here.end).map(|number| range_here.address(number))
            })
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges.iter().map(|r| r.network.to_string()).collect();
        f.write_str(&ranges.join(", "))
    }
}

#[cfg(test)]
mod tests;
