//! `RTM_NEWNETCONF`: somebody turned a switch under `net.ipv4.conf` or `net.ipv6.conf`.

use netlink_packet_core::NlasIterator;

use crate::{Family, IfIndex};

/// include/uapi/linux/rtnetlink.h.
pub(super) const NEW_CONF: u16 = 80;
pub(super) const DELETE_CONF: u16 = 81;
/// `NETCONFA_IFINDEX` and `NETCONFA_FORWARDING`, include/uapi/linux/netconf.h.
const LINK: u16 = 1;
const FORWARDING: u16 = 2;
/// `NETCONFA_IFINDEX_ALL`.
const ALL: i32 = -1;
/// `struct netconfmsg` is one byte; attributes are aligned.
const HEADER: usize = 4;

/// Whether packets are passed on, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switched {
    /// Of which family.
    pub family: Family,
    /// From which link; `None` means all of them.
    pub link: Option<IfIndex>,
    /// Whether they are passed on.
    pub on: bool,
}

impl Switched {
    /// `None`: another switch, another family, or what new links begin with.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let family = match i32::from(*payload.first()?) {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return None,
        };
        let (mut link, mut on) = (None, None);
        for attribute in NlasIterator::new(payload.get(HEADER..)?).flatten() {
            let Some(value) = attribute.value().first_chunk().copied() else {
                continue;
            };
            match attribute.kind() {
                LINK => link = Some(i32::from_ne_bytes(value)),
                FORWARDING => on = Some(i32::from_ne_bytes(value) != 0),
                _ => {}
            }
        }
        let link = match link? {
            ALL => None,
            // The one of new links is negative, too.
            index => Some(IfIndex(u32::try_from(index).ok()?)),
        };
        Some(Self {
            family,
            link,
            on: on?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: u8, attributes: &[(u16, i32)]) -> Vec<u8> {
        let mut bytes = vec![family, 0, 0, 0];
        for (kind, value) in attributes {
            bytes.extend(8_u16.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn forwarding_of_all_and_of_one_link_is_read_and_nothing_else() {
        let read = |family, attributes: &[_]| Switched::parse(&message(family, attributes));
        let switched = |family, link: Option<u32>, on| {
            let link = link.map(IfIndex);
            Some(Switched { family, link, on })
        };
        let all_off = [(1, -1), (2, 0)];
        assert_eq!(read(2, &all_off), switched(Family::V4, None, false));
        assert_eq!(read(10, &all_off), switched(Family::V6, None, false));
        let one_on = [(2, 1), (1, 7)];
        assert_eq!(read(2, &one_on), switched(Family::V4, Some(7), true));
        // The default of new links, rp_filter, MPLS, and what is cut off.
        assert_eq!(read(2, &[(1, -2), (2, 0)]), None);
        assert_eq!(read(2, &[(1, -1), (3, 0)]), None);
        assert_eq!(read(28, &all_off), None);
        let whole = message(2, &all_off);
        for length in 0..whole.len() {
            assert_eq!(Switched::parse(&whole[..length]), None, "{length}");
        }
    }
}
