//! Gives Services their addresses, and the same ones again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Which Service has, or had, which address. Those of Services that are gone are kept
/// for their return until the range has nothing else left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocator {
    range: Ipv4Network,
    /// By `namespace/name`.
    known: BTreeMap<String, Assignment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Assignment {
    address: Ipv4Addr,
    in_use: bool,
}

/// What is kept on disk.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Saved {
    /// Address by `namespace/name`.
    pub(super) services: BTreeMap<String, Ipv4Addr>,
}

/// A Service cannot have an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AllocateError {
    #[error("{0:?} is not an IPv4 address")]
    Malformed(String),
    #[error("{address} is not in the service range {range}")]
    OutOfRange {
        address: Ipv4Addr,
        range: Ipv4Network,
    },
    #[error("{address} is kept free in the service range {range}")]
    Reserved {
        address: Ipv4Addr,
        range: Ipv4Network,
    },
    #[error("{address} belongs to Service {holder}")]
    Taken { address: Ipv4Addr, holder: String },
    #[error("the service range {range} is exhausted: all {size} addresses are in use")]
    Exhausted { range: Ipv4Network, size: u32 },
}

impl Allocator {
    /// For `range`, remembering what still lies in it of `saved`.
    pub(super) fn new(range: Ipv4Network, saved: Saved) -> Self {
        let mut allocator = Self {
            range,
            known: BTreeMap::new(),
        };
        for (service, address) in saved.services {
            if allocator.check_usable(address).is_ok() && allocator.holder(address).is_none() {
                allocator.known.insert(
                    service,
                    Assignment {
                        address,
                        in_use: false,
                    },
                );
            }
        }
        allocator
    }

    /// What to keep on disk.
    pub(super) fn saved(&self) -> Saved {
        let services = self
            .known
            .iter()
            .map(|(name, known)| (name.clone(), known.address));
        Saved {
            services: services.collect(),
        }
    }

    /// The address of `service`: the one it asks for, the one it had, or a free one.
    pub(super) fn allocate(
        &mut self,
        service: &str,
        wanted: Option<&str>,
    ) -> Result<Ipv4Addr, AllocateError> {
        let address = match wanted.filter(|wanted| !wanted.is_empty()) {
            Some(wanted) => self.claim(service, wanted)?,
            None => match self.known.get(service) {
                Some(known) => known.address,
                None => self.find(service)?,
            },
        };
        // Whoever was only remembered gives way.
        self.known
            .retain(|name, known| known.address != address || name == service);
        self.known.insert(
            service.to_owned(),
            Assignment {
                address,
                in_use: true,
            },
        );
        Ok(address)
    }

    /// Only `services` are there; the addresses of others are remembered.
    pub(super) fn release_others(&mut self, services: &BTreeSet<String>) {
        for (name, known) in &mut self.known {
            known.in_use &= services.contains(name);
        }
    }

    /// What `service` has.
    pub(super) fn address(&self, service: &str) -> Option<Ipv4Addr> {
        let known = self.known.get(service).filter(|known| known.in_use)?;
        Some(known.address)
    }

    fn claim(&self, service: &str, wanted: &str) -> Result<Ipv4Addr, AllocateError> {
        let address = wanted
            .parse()
            .map_err(|_syntax: std::net::AddrParseError| {
                AllocateError::Malformed(wanted.to_owned())
            })?;
        self.check_usable(address)?;
        match self.holder(address) {
            Some((holder, known)) if holder != service && known.in_use => {
                Err(AllocateError::Taken {
                    address,
                    holder: holder.to_owned(),
                })
            }
            _ => Ok(address),
        }
    }

    /// Never the network's own address, its broadcast address, nor the first: that is
    /// `kubernetes.default`'s by convention.
    fn check_usable(&self, address: Ipv4Addr) -> Result<(), AllocateError> {
        let range = self.range;
        if !range.contains(address) {
            return Err(AllocateError::OutOfRange { address, range });
        }
        let offset = address.to_bits() - range.network().to_bits();
        if (2..=self.size() + 1).contains(&offset) {
            return Ok(());
        }
        Err(AllocateError::Reserved { address, range })
    }

    /// How many addresses can be given out.
    fn size(&self) -> u32 {
        (self.range.broadcast().to_bits() - self.range.network().to_bits()).saturating_sub(2)
    }

    fn holder(&self, address: Ipv4Addr) -> Option<(&str, &Assignment)> {
        let mut known = self.known.iter();
        known
            .find(|(_name, known)| known.address == address)
            .map(|(name, k)| (name.as_str(), k))
    }

    /// Begins where the name points, so that even without memory a Service mostly gets
    /// the same address; takes remembered ones only when nothing else is left.
    fn find(&self, service: &str) -> Result<Ipv4Addr, AllocateError> {
        let size = self.size();
        let hash = Sha256::digest(service.as_bytes());
        let start = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        let candidates = || {
            let first = self.range.network().to_bits() + 2;
            (0..size).map(move |step| Ipv4Addr::from_bits(first + (start % size + step) % size))
        };
        let taken: BTreeMap<Ipv4Addr, bool> = self
            .known
            .values()
            .map(|known| (known.address, known.in_use))
            .collect();
        candidates()
            .find(|address| !taken.contains_key(address))
            .or_else(|| candidates().find(|address| taken.get(address) != Some(&true)))
            .ok_or(AllocateError::Exhausted {
                range: self.range,
                size,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(range: &str) -> Allocator {
        Allocator::new(range.parse().unwrap(), Saved::default())
    }

    #[track_caller]
    fn check_refused(result: Result<Ipv4Addr, AllocateError>, want: &str) {
        assert_eq!(result.unwrap_err().to_string(), want);
    }

    #[test]
    fn addresses_stay_with_their_service() {
        let mut first = allocator("10.96.0.0/16");
        let web = first.allocate("a/web", None).unwrap();
        let other = first.allocate("a/other", None).unwrap();
        assert_ne!(web, other);
        assert_eq!(first.allocate("a/web", None).unwrap(), web);
        first.release_others(&BTreeSet::new());
        assert_eq!(first.allocate("a/web", None).unwrap(), web);
        let mut later = Allocator::new("10.96.0.0/16".parse().unwrap(), first.saved());
        assert_eq!(later.allocate("a/other", None).unwrap(), other);
        assert_eq!(
            allocator("10.96.0.0/16").allocate("a/web", None).unwrap(),
            web
        );
    }

    #[test]
    fn a_wanted_address_is_given_if_it_is_free() {
        let mut range = allocator("10.0.0.0/24");
        let wanted = range.allocate("a/web", Some("10.0.0.9")).unwrap();
        assert_eq!(wanted, Ipv4Addr::new(10, 0, 0, 9));
        check_refused(
            range.allocate("a/b", Some("10.0.0.9")),
            "10.0.0.9 belongs to Service a/web",
        );
        range.release_others(&BTreeSet::new());
        assert_eq!(range.allocate("a/b", Some("10.0.0.9")).unwrap(), wanted);
        assert_ne!(range.allocate("a/web", None).unwrap(), wanted);
        assert_eq!(
            range.allocate("a/b", Some("10.0.0.10")).unwrap().octets()[3],
            10
        );
    }

    #[test]
    fn refusals_say_why() {
        let mut range = allocator("10.0.0.0/24");
        check_refused(
            range.allocate("s", Some("x")),
            "\"x\" is not an IPv4 address",
        );
        check_refused(
            range.allocate("s", Some("10.0.1.1")),
            "10.0.1.1 is not in the service range 10.0.0.0/24",
        );
        for last in [0, 1, 255] {
            let address = format!("10.0.0.{last}");
            let want = format!("{address} is kept free in the service range 10.0.0.0/24");
            check_refused(range.allocate("s", Some(&address)), &want);
        }
    }

    #[test]
    fn an_exhausted_range_says_so_and_forgets_the_gone_first() {
        let mut range = allocator("10.0.0.0/29");
        for index in 0..5 {
            range.allocate(&format!("s{index}"), None).unwrap();
        }
        check_refused(
            range.allocate("more", None),
            "the service range 10.0.0.0/29 is exhausted: all 5 addresses are in use",
        );
        let freed = range.allocate("s3", None).unwrap();
        let others = ["s0", "s1", "s2", "s4"].map(str::to_owned);
        range.release_others(&BTreeSet::from(others));
        assert_eq!(range.allocate("more", None).unwrap(), freed);
        assert_eq!(range.saved().services.len(), 5);
        check_refused(
            allocator("10.0.0.0/32").allocate("s", None),
            "the service range 10.0.0.0/32 is exhausted: all 0 addresses are in use",
        );
    }
}
