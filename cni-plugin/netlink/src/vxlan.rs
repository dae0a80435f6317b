//! VXLAN devices.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::{IfIndex, Link, MacAddr, NetlinkError, Request, Socket};

/// How a VXLAN device wraps frames (RFC 7348). None of it can be changed on a device that
/// exists (`vxlan_changelink`, Linux 6.18, allows some of it, not all).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// VXLAN network identifier, below 2^24.
    pub id: u32,
    /// UDP port, here and at the other end.
    pub port: u16,
    /// Source of the outer packets.
    pub local: Option<IpAddr>,
    /// The link that outer packets leave by; the device goes when that goes.
    pub underlay: Option<IfIndex>,
    /// Whether the device remembers where a frame's sender is.
    pub learning: bool,
    /// Where frames for unknown receivers go.
    pub group: Option<IpAddr>,
}

/// A VXLAN device to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VxlanDevice {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Hardware address. Given at creation it is "set", and udev leaves it
    /// alone; a random one would be rewritten (systemd#21185).
    pub mac: MacAddr,
    /// Bytes.
    pub mtu: u32,
    /// How it wraps frames.
    pub vxlan: Vxlan,
}

impl Vxlan {
    /// Unicast to known receivers only: nothing is learned, nothing flooded.
    pub fn unicast(id: u32, port: u16, local: IpAddr, underlay: IfIndex) -> Self {
        Self {
            id,
            port,
            local: Some(local),
            underlay: Some(underlay),
            learning: false,
            group: None,
        }
    }

    /// Hop limit and type of service are left to the kernel, as for its own packets. Over
    /// IPv4 the outer checksum is zero (RFC 7348, section 5), over IPv6 it has to be there.
    fn data(&self) -> Vec<InfoVxlan> {
        let mut data = vec![
            InfoVxlan::Id(self.id),
            InfoVxlan::Port(self.port),
            InfoVxlan::Learning(self.learning),
        ];
        data.extend(self.underlay.map(|index| InfoVxlan::Link(index.0)));
        data.extend(self.local.map(|ip| match ip {
            IpAddr::V4(ip) => InfoVxlan::Local(ip),
            IpAddr::V6(ip) => InfoVxlan::Local6(ip),
        }));
        data.extend(self.group.map(|ip| match ip {
            IpAddr::V4(ip) => InfoVxlan::Group(ip),
            IpAddr::V6(ip) => InfoVxlan::Group6(ip),
        }));
        if self.local.is_none_or(|ip| ip.is_ipv4()) {
            data.push(InfoVxlan::UDPCsum(false));
        }
        data
    }

    fn parse(data: &[InfoVxlan]) -> Self {
        let mut vxlan = Self {
            id: 0,
            port: 0,
            local: None,
            underlay: None,
            learning: false,
            group: None,
        };
        for attribute in data {
            match attribute {
                InfoVxlan::Id(id) => vxlan.id = *id,
                InfoVxlan::Port(port) => vxlan.port = *port,
                InfoVxlan::Local(ip) => vxlan.local = Some((*ip).into()),
                InfoVxlan::Local6(ip) => vxlan.local = Some((*ip).into()),
                InfoVxlan::Group(ip) => vxlan.group = Some((*ip).into()),
                InfoVxlan::Group6(ip) => vxlan.group = Some((*ip).into()),
                InfoVxlan::Link(index) => vxlan.underlay = Some(IfIndex(*index)),
                InfoVxlan::Learning(learning) => vxlan.learning = *learning,
                _ => {}
            }
        }
        vxlan
    }

    /// `None`: another kind of link.
    pub(crate) fn of(message: &LinkMessage) -> Option<Self> {
        let infos = message.attributes.iter().find_map(|a| match a {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        })?;
        infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Vxlan(data)) => Some(Self::parse(data)),
            _ => None,
        })
    }
}

impl VxlanDevice {
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(self.name.clone()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::Address(self.mac.0.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(self.vxlan.data())),
            ]),
        ];
        message
    }
}

impl Request<'static> {
    /// Makes a VXLAN device, down.
    pub fn link_add_vxlan(device: &VxlanDevice) -> Self {
        let VxlanDevice { name, vxlan, .. } = device;
        Self::new(
            "link add vxlan",
            format!("{name} id {} dstport {}", vxlan.id, vxlan.port),
            NLM_F_CREATE | NLM_F_EXCL,
            &Message::NewLink(device.message()),
        )
    }
}

impl Socket {
    /// Makes a VXLAN device, down.
    pub fn link_add_vxlan(&mut self, device: &VxlanDevice) -> Result<(), NetlinkError> {
        self.execute(&[Request::link_add_vxlan(device)])
    }

    /// The link of this name, and how it wraps frames; `None` instead of the latter if it
    /// is not a VXLAN device.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] when there is none.
    pub fn vxlan_by_name(&mut self, name: &str) -> Result<(Link, Option<Vxlan>), NetlinkError> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let message = self.link(name, message)?;
        let vxlan = Vxlan::of(&message);
        Ok((Link::parse(message), vxlan))
    }

    /// Sets the MTU of a link, in bytes.
    pub fn link_set_mtu(&mut self, index: IfIndex, mtu: u32) -> Result<(), NetlinkError> {
        self.execute(&[Request::link_set_mtu(index, mtu)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_and_back() {
        for local in ["172.30.0.11", "fd01::11"] {
            let vxlan = Vxlan::unicast(83, 8472, local.parse().unwrap(), IfIndex(3));
            let device = VxlanDevice {
                name: "seaway.vx".into(),
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                mtu: 1450,
                vxlan,
            };
            assert_eq!(Vxlan::of(&device.message()), Some(vxlan));
            let link = Link::parse(device.message());
            assert_eq!((link.mac, link.mtu), (Some(device.mac), 1450));
        }
        assert_eq!(Vxlan::of(&LinkMessage::default()), None);
    }
}
