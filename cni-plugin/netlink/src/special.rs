//! Ranges that no pod can have an address of.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

/// A range with a meaning of its own (RFC 6890). The kernel routes none of them as it
/// routes others, so they are no addresses for pods.
///
/// 240.0.0.0/4 is not here: the kernel routes it, and some clouds give it to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecialRange {
    /// 0.0.0.0/8 and `::`.
    Unspecified,
    /// 127.0.0.0/8 and `::1`.
    Loopback,
    /// 169.254.0.0/16 and `fe80::/10`.
    LinkLocal,
    /// 224.0.0.0/4 and `ff00::/8`.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// `::ffff:0:0/96`, IPv4 spelled as IPv6.
    V4Mapped,
}

const ALL: [(IpAddr, u8, SpecialRange); 10] = [
    (v4([0, 0, 0, 0]), 8, SpecialRange::Unspecified),
    (v4([127, 0, 0, 0]), 8, SpecialRange::Loopback),
    (v4([169, 254, 0, 0]), 16, SpecialRange::LinkLocal),
    (v4([224, 0, 0, 0]), 4, SpecialRange::Multicast),
    (v4([255; 4]), 32, SpecialRange::Broadcast),
    (v6(0, 0, 0), 128, SpecialRange::Unspecified),
    (v6(0, 0, 1), 128, SpecialRange::Loopback),
    (v6(0xfe80, 0, 0), 10, SpecialRange::LinkLocal),
    (v6(0xff00, 0, 0), 8, SpecialRange::Multicast),
    (v6(0, 0xffff, 0), 96, SpecialRange::V4Mapped),
];

const fn v4([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// The first, the sixth and the last of the eight parts.
const fn v6(first: u16, sixth: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, sixth, 0, last))
}

impl SpecialRange {
    /// The first of them that has an address in common with `network`.
    pub fn touched_by(network: IpNetwork) -> Option<Self> {
        let touches = |base: IpAddr, prefix| {
            IpNetwork::new(base, prefix)
                .is_ok_and(|special| special.contains(network.network()) || network.contains(base))
        };
        ALL.into_iter()
            .find(|(base, prefix, _)| touches(*base, *prefix))
            .map(|(_, _, special)| special)
    }
}

impl fmt::Display for SpecialRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "unspecified addresses (0.0.0.0/8, ::)",
            Self::Loopback => "loopback addresses (127.0.0.0/8, ::1)",
            Self::LinkLocal => "link-local addresses (169.254.0.0/16, fe80::/10)",
            Self::Multicast => "multicast addresses (224.0.0.0/4, ff00::/8)",
            Self::Broadcast => "the broadcast address (255.255.255.255)",
            Self::V4Mapped => "IPv4-mapped addresses (::ffff:0:0/96)",
        })
    }
}
