//! Forwarding database of VXLAN devices: behind which node a hardware address is.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use crate::socket::removed;
use crate::{IfIndex, MacAddr, NetlinkError, Request, Socket};

/// Frames for `mac` go to `remote`. The all-zero address stands for all unknown ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdbEntry {
    /// The VXLAN device.
    pub ifindex: IfIndex,
    /// Receiver's hardware address.
    pub mac: MacAddr,
    /// Where the other end of the tunnel is.
    pub remote: IpAddr,
    /// By which link it is sent to; the routes decide if not given.
    pub link: Option<IfIndex>,
}

impl FdbEntry {
    fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.ifindex.0;
        message.header.state = NeighbourState::Permanent;
        // The device's own table, not that of a bridge above it (`NTF_SELF`).
        message.header.flags = NeighbourFlags::Own;
        message.attributes = vec![
            NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec()),
            NeighbourAttribute::Destination(self.remote.into()),
        ];
        let link = self.link.map(|link| NeighbourAttribute::IfIndex(link.0));
        message.attributes.extend(link);
        message
    }

    /// `None`: an entry that is not one of a VXLAN device.
    pub(crate) fn parse(message: &NeighbourMessage) -> Option<Self> {
        if message.header.family != AddressFamily::Bridge {
            return None;
        }
        let (mut mac, mut remote, mut link) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = bytes.as_slice().try_into().ok().map(MacAddr);
                }
                NeighbourAttribute::Destination(address) => remote = ip(address),
                NeighbourAttribute::IfIndex(index) => link = Some(IfIndex(*index)),
                _ => {}
            }
        }
        Some(Self {
            ifindex: IfIndex(message.header.ifindex),
            mac: mac?,
            remote: remote?,
            link,
        })
    }
}

/// The family of the message is the bridge's, so only the length tells that of the address.
fn ip(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(ip) => Some((*ip).into()),
        NeighbourAddress::Inet6(ip) => Some((*ip).into()),
        NeighbourAddress::Other(bytes) => <[u8; 4]>::try_from(bytes.as_slice())
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes.as_slice()).map(IpAddr::from))
            .ok(),
        _ => None,
    }
}

impl Request<'static> {
    /// Adds an entry, or replaces all that the device has for the same hardware address.
    pub fn fdb_replace(entry: &FdbEntry) -> Self {
        let message = Message::NewNeighbour(entry.message());
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        Self::new("fdb replace", object(entry), flags, &message)
    }

    /// Deletes an entry.
    pub fn fdb_delete(entry: &FdbEntry) -> Self {
        let message = Message::DelNeighbour(entry.message());
        Self::new("fdb delete", object(entry), 0, &message)
    }
}

impl Socket {
    /// Entries of one VXLAN device.
    pub fn fdb(&mut self, ifindex: IfIndex) -> Result<Vec<FdbEntry>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = ifindex.0;
        let object = ifindex.to_string();
        let request = Request::new("fdb list", object, 0, &Message::GetNeighbour(message));
        let mut entries = self.list(&request, |message| match message {
            Message::NewNeighbour(entry) => FdbEntry::parse(&entry),
            _ => None,
        })?;
        entries.retain(|entry| entry.ifindex == ifindex);
        Ok(entries)
    }

    /// Adds an entry, or replaces all that the device has for the same hardware address.
    pub fn fdb_replace(&mut self, entry: &FdbEntry) -> Result<(), NetlinkError> {
        self.execute(&[Request::fdb_replace(entry)])
    }

    /// Makes sure that the entry is not there; tells whether it was.
    pub fn remove_fdb(&mut self, entry: &FdbEntry) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::fdb_delete(entry)]))
    }
}

fn object(entry: &FdbEntry) -> String {
    format!("{} dst {} dev {}", entry.mac, entry.remote, entry.ifindex)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, Parseable};

    use super::*;

    #[test]
    fn message_and_back_as_bytes() {
        for (remote, link) in [("172.30.0.12", None), ("fd01::12", Some(IfIndex(3)))] {
            let entry = FdbEntry {
                ifindex: IfIndex(7),
                mac: MacAddr([2, 0, 0, 0, 0, 9]),
                remote: remote.parse().unwrap(),
                link,
            };
            let message = entry.message();
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            let read = NeighbourMessage::parse(bytes.as_slice()).unwrap();
            assert_eq!(FdbEntry::parse(&read), Some(entry));
        }
        assert_eq!(FdbEntry::parse(&NeighbourMessage::default()), None);
    }
}
