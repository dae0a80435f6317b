//! Network interfaces.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};

use crate::MacAddr;

/// Number of an interface, unique within its network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ifindex {}", self.0)
    }
}

/// An interface, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Number.
    pub index: IfIndex,
    /// Name, at most 15 bytes (`IFNAMSIZ`).
    pub name: String,
    /// Human text, empty unless set.
    pub alias: Option<String>,
    /// Hardware address; absent on links that have none.
    pub mac: Option<MacAddr>,
    /// Maximum transmission unit in bytes, without the link header.
    pub mtu: u32,
    /// Kind of what shapes or queues what it sends, such as `tbf`.
    pub qdisc: Option<String>,
    /// Administratively up.
    pub up: bool,
    /// Able to pass packets (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The kernel has acted on the carrier (`IFLA_OPERSTATE` is up, RFC 2863).
    /// Until then what is sent is dropped: queues are attached by a deferred
    /// job (net/core/link_watch.c).
    pub operational: bool,
    /// Number that marks links of one owner; 0 unless set (`IFLA_GROUP`).
    pub group: u32,
    /// Driver kind such as `veth`; absent on hardware and loopback.
    pub kind: Option<String>,
    /// For a veth, the other end's number, in the other end's namespace.
    pub peer: Option<IfIndex>,
    /// Where the other end is: absent in the same namespace, negative when
    /// that namespace is going away (`NETNSA_NSID_NOT_ASSIGNED`).
    pub peer_netns: Option<i32>,
}

/// One end of a veth pair to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEnd {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Number; chosen by the caller, so that later requests can ride in the
    /// same send without asking for it first.
    pub index: IfIndex,
    /// Hardware address. Given at creation it is "set", and udev leaves it
    /// alone; a random one would be rewritten (systemd#21185).
    pub mac: MacAddr,
}

/// A veth pair, born in place: the peer is created directly inside its
/// namespace. Moving it there later costs 16 ms more.
#[derive(Debug, Clone)]
pub struct VethPair<'fd> {
    /// The end in the socket's namespace.
    pub host: VethEnd,
    /// The other end.
    pub peer: VethEnd,
    /// The peer's namespace.
    pub peer_netns: BorrowedFd<'fd>,
    /// Bytes, both ends.
    pub mtu: u32,
    /// Group of the end in the socket's namespace.
    pub group: u32,
}

impl Link {
    pub(crate) fn parse(message: LinkMessage) -> Self {
        let mut link = Self {
            index: IfIndex(message.header.index),
            name: String::new(),
            alias: None,
            mac: None,
            mtu: 0,
            qdisc: None,
            up: message.header.flags.contains(LinkFlags::Up),
            carrier: message.header.flags.contains(LinkFlags::LowerUp),
            operational: false,
            group: 0,
            kind: None,
            peer: None,
            peer_netns: None,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
                LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(MacAddr),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Qdisc(kind) => link.qdisc = Some(kind),
                LinkAttribute::OperState(state) => link.operational = state == State::Up,
                LinkAttribute::Group(group) => link.group = group,
                LinkAttribute::Link(index) => link.peer = Some(IfIndex(index)),
                LinkAttribute::LinkNetNsId(id) => link.peer_netns = Some(id),
                LinkAttribute::LinkInfo(infos) => link.kind = infos.iter().find_map(kind),
                _ => {}
            }
        }
        link
    }
}

fn kind(info: &LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

impl VethPair<'_> {
    /// Neither end is flagged up: the kernel configures the peer before the
    /// two are linked, and refuses with `ENOTCONN` (Linux 6.18).
    pub(crate) fn message(&self) -> LinkMessage {
        let mut peer = end_message(&self.peer, self.mtu);
        peer.attributes
            .push(LinkAttribute::NetNsFd(self.peer_netns.as_raw_fd()));
        let mut host = end_message(&self.host, self.mtu);
        host.attributes.push(LinkAttribute::Group(self.group));
        host.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        host
    }
}

fn end_message(end: &VethEnd, mtu: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = end.index.0;
    message.attributes = vec![
        LinkAttribute::IfName(end.name.clone()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::Address(end.mac.0.to_vec()),
        // The default is one queue per CPU, and creation time grows with it.
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
    ];
    message
}
