//! IPv6 routes of others that win over ours.
//!
//! IPv4 refuses our route when there is another one to the same range. IPv6 takes both: the
//! one with the lower metric is used, and of equal ones each gets a share of the packets.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::{Family, RouteFilter, RouteProtocol, Socket, TableId};

use super::{Changes, PodNetworkError};
use crate::{Desired, Path, PeerCidr};

/// Addresses of a range that are asked for; which of two equal routes an address takes, a
/// hash says.
const ASKED: u128 = 4;

/// Takes note of peers' ranges that packets go to by somebody else's route.
pub(super) fn find(
    socket: &mut Socket,
    want: &Desired,
    changes: &mut Changes,
) -> Result<(), PodNetworkError> {
    let ranges = want.routes().map(|(_, to)| to);
    let wanted: Vec<&PeerCidr> = ranges.filter(|to| to.cidr.is_ipv6()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let filter = RouteFilter {
        table: Some(TableId::MAIN),
        ..RouteFilter::of(Family::V6, RouteProtocol::SEAWAY)
    };
    let own = socket.routes(&filter).map_err(PodNetworkError::netlink)?;
    let own: BTreeSet<IpNetwork> = own.into_iter().map(|route| route.destination).collect();
    // Where ours is not there at all, that has been told.
    for to in wanted.into_iter().filter(|to| own.contains(&to.cidr)) {
        let taken = asked(to.cidr).into_iter().any(|ip| {
            let route = socket.route_get(ip);
            route.is_ok_and(|route| route.protocol != RouteProtocol::SEAWAY)
        });
        if taken {
            let cidr = to.cidr;
            let via = match to.path {
                Path::Direct { via } => via,
                Path::Overlay => to.reserved,
            };
            let error = PodNetworkError::ForeignRoute { cidr, via };
            changes.failed.push(error);
        }
    }
    Ok(())
}

/// The last addresses of a range, which nobody has routes of their own to.
fn asked(cidr: IpNetwork) -> Vec<IpAddr> {
    let IpNetwork::V6(cidr) = cidr else {
        return Vec::new();
    };
    let last = cidr.broadcast().to_bits();
    let addresses = (0..ASKED).map(|back| Ipv6Addr::from_bits(last.saturating_sub(back)));
    let inside = addresses.filter(|ip| cidr.contains(*ip));
    inside.map(IpAddr::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_at_the_end_of_the_range_are_asked_for() {
        let asked = |cidr: &str| {
            let asked = asked(cidr.parse().unwrap()).into_iter();
            asked.map(|ip| ip.to_string()).collect::<Vec<_>>()
        };
        let expect = ["fd00::ff", "fd00::fe", "fd00::fd", "fd00::fc"];
        assert_eq!(asked("fd00::/120"), expect);
        assert_eq!(asked("fd00::/127"), ["fd00::1", "fd00::"]);
        assert_eq!(asked("10.0.0.0/24"), Vec::<String>::new());
    }
}
