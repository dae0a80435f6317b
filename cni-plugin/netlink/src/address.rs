//! Addresses of interfaces.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::route::RouteScope;

use crate::{Family, IfIndex};

/// How far an address or a route is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Scope {
    /// Everywhere (`global`).
    #[default]
    Global,
    /// On the link.
    Link,
    /// On this host.
    Host,
    /// Another number of `rtm_scope`.
    Other(u8),
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub ifindex: IfIndex,
    /// The address with its prefix length.
    pub network: IpNetwork,
    /// Scope.
    pub scope: Scope,
    /// Do not add a route to the prefix.
    pub no_prefix_route: bool,
    /// IPv6: skip duplicate address detection.
    pub no_dad: bool,
    /// IPv6: duplicate address detection is still running. Read only.
    pub tentative: bool,
}

impl Address {
    /// A global address without options.
    pub fn new(ifindex: IfIndex, network: IpNetwork) -> Self {
        Self {
            ifindex,
            network,
            scope: Scope::Global,
            no_prefix_route: false,
            no_dad: false,
            tentative: false,
        }
    }

    pub(crate) fn message(&self) -> AddressMessage {
        let ip = self.network.ip();
        let mut flags = AddressFlags::empty();
        flags.set(AddressFlags::Noprefixroute, self.no_prefix_route);
        flags.set(AddressFlags::Nodad, self.no_dad);
        let mut message = AddressMessage::default();
        message.header.family = Family::of(ip).wire();
        message.header.prefix_len = self.network.prefix();
        message.header.scope = self.scope.into();
        message.header.index = self.ifindex.0;
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        if !flags.is_empty() {
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        message
    }

    /// `None`: a family that is not IP.
    pub(crate) fn parse(message: &AddressMessage) -> Option<Self> {
        let mut local: Option<IpAddr> = None;
        let mut address: Option<IpAddr> = None;
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        // On point-to-point links IFA_ADDRESS is the other side.
        let ip = local.or(address)?;
        Some(Self {
            ifindex: IfIndex(message.header.index),
            network: IpNetwork::new(ip, message.header.prefix_len).ok()?,
            scope: message.header.scope.into(),
            no_prefix_route: flags.contains(AddressFlags::Noprefixroute),
            no_dad: flags.contains(AddressFlags::Nodad),
            tentative: flags.contains(AddressFlags::Tentative),
        })
    }
}

impl From<Scope> for u8 {
    /// `RT_SCOPE_*`, include/uapi/linux/rtnetlink.h.
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Global => 0,
            Scope::Link => 253,
            Scope::Host => 254,
            Scope::Other(number) => number,
        }
    }
}

impl From<u8> for Scope {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::Global,
            253 => Self::Link,
            254 => Self::Host,
            other => Self::Other(other),
        }
    }
}

impl From<Scope> for AddressScope {
    fn from(scope: Scope) -> Self {
        u8::from(scope).into()
    }
}

impl From<AddressScope> for Scope {
    fn from(scope: AddressScope) -> Self {
        u8::from(scope).into()
    }
}

impl From<Scope> for RouteScope {
    fn from(scope: Scope) -> Self {
        u8::from(scope).into()
    }
}

impl From<RouteScope> for Scope {
    fn from(scope: RouteScope) -> Self {
        u8::from(scope).into()
    }
}
