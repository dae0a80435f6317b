//! Neighbour (ARP, NDP) entries.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;

use crate::{Family, IfIndex, MacAddr};

/// Which hardware address an IP address has on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The link.
    pub ifindex: IfIndex,
    /// IP address.
    pub address: IpAddr,
    /// Hardware address; absent while it is not known.
    pub mac: Option<MacAddr>,
    /// Never asked for, never aged (`NUD_PERMANENT`).
    pub permanent: bool,
}

impl Neighbour {
    /// A permanent entry.
    pub fn permanent(ifindex: IfIndex, address: IpAddr, mac: MacAddr) -> Self {
        Self {
            ifindex,
            address,
            mac: Some(mac),
            permanent: true,
        }
    }

    pub(crate) fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = Family::of(self.address).wire();
        message.header.ifindex = self.ifindex.0;
        message.header.kind = RouteType::Unspec;
        message.header.state = if self.permanent {
            NeighbourState::Permanent
        } else {
            NeighbourState::Reachable
        };
        message
            .attributes
            .push(NeighbourAttribute::Destination(match self.address {
                IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
                IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
            }));
        let mac = self
            .mac
            .map(|mac| NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        message.attributes.extend(mac);
        message
    }

    /// `None`: a family that is not IP.
    pub(crate) fn parse(message: &NeighbourMessage) -> Option<Self> {
        let mut address = None;
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => {
                    address = Some(IpAddr::V4(*ip));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => {
                    address = Some(IpAddr::V6(*ip));
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = bytes.as_slice().try_into().ok().map(MacAddr);
                }
                _ => {}
            }
        }
        Some(Self {
            ifindex: IfIndex(message.header.ifindex),
            address: address?,
            mac,
            permanent: message.header.state == NeighbourState::Permanent,
        })
    }
}
