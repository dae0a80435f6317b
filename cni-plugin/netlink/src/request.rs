//! Requests: one per verb, to be executed alone or many in one send.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use netlink_packet_core::{
    DefaultNla, NLA_F_NESTED, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE,
    NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::route::RouteAttribute;

use crate::wire::Frame;
use crate::{Address, IfIndex, Neighbour, Route, TokenBucket, VethPair};

/// `IFLA_INET_CONF`, include/uapi/linux/if_link.h, and one of the settings in it,
/// include/uapi/linux/ip.h. netlink-packet-route knows them, but writes none that is 0.
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_SEND_REDIRECTS: u16 = 6;

/// One change, or one question, to the kernel.
///
/// The verbs are iproute2's. `add` fails when the object exists, `delete` when
/// it does not.
#[derive(Debug, Clone)]
pub struct Request<'fd> {
    pub(crate) frame: Frame,
    /// A namespace in the payload is a file descriptor number.
    netns: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> Request<'fd> {
    /// Makes a veth pair, both ends down.
    pub fn link_add_veth(pair: &VethPair<'fd>) -> Self {
        let object = format!("{} peer {}", pair.host.name, pair.peer.name);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new(
            "link add veth",
            object,
            flags,
            &Message::NewLink(pair.message()),
        )
    }

    pub(crate) fn new(
        op: &'static str,
        object: impl Into<String>,
        flags: u16,
        message: &Message,
    ) -> Self {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        let kind = message.message_type();
        let flags = flags | NLM_F_ACK;
        Self {
            frame: Frame {
                kind,
                flags,
                payload,
                op,
                object: object.into(),
            },
            netns: PhantomData,
        }
    }
}

impl Request<'static> {
    /// Deletes a link; for a veth, both ends.
    pub fn link_delete(index: IfIndex) -> Self {
        let message = Message::DelLink(link(index));
        Self::new("link delete", index.to_string(), 0, &message)
    }

    /// Deletes a link by name, without asking for its number first.
    pub fn link_delete_by_name(name: &str) -> Self {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        Self::new("link delete", name, 0, &Message::DelLink(message))
    }

    /// Puts a link into a group.
    pub fn link_set_group(index: IfIndex, group: u32) -> Self {
        let mut message = link(index);
        message.attributes.push(LinkAttribute::Group(group));
        Self::new(
            "link set group",
            format!("{index} to {group}"),
            0,
            &Message::SetLink(message),
        )
    }

    /// Deletes all links of a group, in about the time of one.
    pub fn link_delete_group(group: u32) -> Self {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(group));
        let object = format!("group {group}");
        Self::new("link delete", object, 0, &Message::DelLink(message))
    }

    /// Brings a link up.
    pub fn link_set_up(index: IfIndex) -> Self {
        let mut message = link(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        Self::new(
            "link set up",
            index.to_string(),
            0,
            &Message::SetLink(message),
        )
    }

    /// Keeps the kernel from making an IPv6 link-local address when the link comes up.
    pub fn link_set_no_link_local(index: IfIndex) -> Self {
        let mut message = link(index);
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let inet6 = AfSpecUnspec::Inet6(vec![mode]);
        message
            .attributes
            .push(LinkAttribute::AfSpecUnspec(vec![inet6]));
        Self::new(
            "link set addrgenmode none",
            index.to_string(),
            0,
            &Message::SetLink(message),
        )
    }

    /// Takes a link down.
    pub fn link_set_down(index: IfIndex) -> Self {
        let mut message = link(index);
        message.header.change_mask = LinkFlags::Up;
        Self::new(
            "link set down",
            index.to_string(),
            0,
            &Message::SetLink(message),
        )
    }

    /// Brings a link up that tells IPv4 hosts of no better way (`send_redirects`).
    pub fn link_set_up_without_redirects(index: IfIndex) -> Self {
        let mut message = link(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        // An attribute of eight bytes, of which four are the value.
        let off = [8, IPV4_DEVCONF_SEND_REDIRECTS, 0, 0].map(u16::to_ne_bytes);
        let settings = DefaultNla::new(IFLA_INET_CONF | NLA_F_NESTED, off.concat());
        let inet = AfSpecUnspec::Inet(vec![AfSpecInet::Other(settings)]);
        message
            .attributes
            .push(LinkAttribute::AfSpecUnspec(vec![inet]));
        Self::new(
            "link set up without redirects",
            index.to_string(),
            0,
            &Message::SetLink(message),
        )
    }

    /// Sets the MTU, in bytes.
    pub fn link_set_mtu(index: IfIndex, mtu: u32) -> Self {
        let mut message = link(index);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        Self::new(
            "link set mtu",
            format!("{index} to {mtu}"),
            0,
            &Message::SetLink(message),
        )
    }

    /// Sets the human text, at most 255 bytes. It cannot be given at creation
    /// (`rtnl_create_link` ignores it, Linux 6.18).
    pub fn link_set_alias(index: IfIndex, alias: &str) -> Self {
        let mut message = link(index);
        message
            .attributes
            .push(LinkAttribute::IfAlias(alias.to_owned()));
        Self::new(
            "link set alias",
            index.to_string(),
            0,
            &Message::SetLink(message),
        )
    }

    /// Shapes what a link sends.
    pub fn qdisc_add(index: IfIndex, bucket: &TokenBucket) -> Self {
        Self::new(
            "qdisc add tbf",
            format!("{index} rate {} B/s", bucket.rate),
            NLM_F_CREATE | NLM_F_EXCL,
            &Message::NewQueueDiscipline(bucket.message(index)),
        )
    }

    /// Adds an address.
    pub fn address_add(address: &Address) -> Self {
        let message = Message::NewAddress(address.message());
        Self::new(
            "address add",
            object(address),
            NLM_F_CREATE | NLM_F_EXCL,
            &message,
        )
    }

    /// Adds an address, or changes the flags of an equal one.
    pub fn address_replace(address: &Address) -> Self {
        let message = Message::NewAddress(address.message());
        Self::new(
            "address replace",
            object(address),
            NLM_F_CREATE | NLM_F_REPLACE,
            &message,
        )
    }

    /// Removes an address.
    pub fn address_delete(address: &Address) -> Self {
        let message = Message::DelAddress(address.message());
        Self::new("address delete", object(address), 0, &message)
    }

    /// Adds a route.
    pub fn route_add(route: &Route) -> Self {
        let message = Message::NewRoute(route.message());
        Self::new(
            "route add",
            route.to_string(),
            NLM_F_CREATE | NLM_F_EXCL,
            &message,
        )
    }

    /// Adds a route beside those to the same destination through other links.
    pub fn route_append(route: &Route) -> Self {
        let message = Message::NewRoute(route.message());
        Self::new(
            "route append",
            route.to_string(),
            NLM_F_CREATE | NLM_F_APPEND,
            &message,
        )
    }

    /// The same with a route that ends by itself after so many seconds. IPv6 only.
    pub fn route_append_for(route: &Route, seconds: u32) -> Self {
        let mut message = route.message();
        message.attributes.push(RouteAttribute::Expires(seconds));
        Self::new(
            "route append",
            format!("{route} for {seconds} s"),
            NLM_F_CREATE | NLM_F_APPEND,
            &Message::NewRoute(message),
        )
    }

    /// Adds a route, or replaces the one with the same destination, metric
    /// and table, whoever made it.
    pub fn route_replace(route: &Route) -> Self {
        let message = Message::NewRoute(route.message());
        Self::new(
            "route replace",
            route.to_string(),
            NLM_F_CREATE | NLM_F_REPLACE,
            &message,
        )
    }

    /// Deletes a route that agrees in every field given.
    pub fn route_delete(route: &Route) -> Self {
        let message = Message::DelRoute(route.message());
        Self::new("route delete", route.to_string(), 0, &message)
    }

    /// Adds or replaces a neighbour entry.
    pub fn neighbour_replace(neighbour: &Neighbour) -> Self {
        let object = format!("{} dev {}", neighbour.address, neighbour.ifindex);
        let message = Message::NewNeighbour(neighbour.message());
        Self::new(
            "neighbour replace",
            object,
            NLM_F_CREATE | NLM_F_REPLACE,
            &message,
        )
    }

    /// Deletes a neighbour entry.
    pub fn neighbour_delete(neighbour: &Neighbour) -> Self {
        let object = format!("{} dev {}", neighbour.address, neighbour.ifindex);
        let message = Message::DelNeighbour(neighbour.message());
        Self::new("neighbour delete", object, 0, &message)
    }

    /// The operation, for errors and logs.
    pub fn op(&self) -> &'static str {
        self.frame.op
    }
}

fn link(index: IfIndex) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index.0;
    message
}

fn object(address: &Address) -> String {
    format!("{} dev {}", address.network, address.ifindex)
}
