//! The kernel's table, over ctnetlink.

use netlink_packet_core::NLM_F_ACK;
use seaway_netlink::NetlinkError;
use seaway_netlink::wire::{Frame, Wire};
use seaway_proxy_core::desired::Family;

use super::entry::Entry;

/// include/uapi/linux/netlink.h
const NETLINK_NETFILTER: isize = 12;
/// `NFNL_SUBSYS_CTNETLINK << 8`, with `IPCTNL_MSG_CT_GET` and `_DELETE`.
const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;

/// One family's part of the table, in the namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Table {
    wire: Wire,
    /// `struct nfgenmsg`: family, version 0, resource 0.
    header: [u8; 4],
}

impl Table {
    pub(super) fn open(family: Family) -> Result<Self, NetlinkError> {
        let family = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        let family = u8::try_from(family).expect("AF_INET and AF_INET6 are small");
        Ok(Self {
            wire: Wire::open(NETLINK_NETFILTER)?,
            header: [family, 0, 0, 0],
        })
    }

    /// The entries for which `wanted` says yes, in memory of their number only.
    pub(super) fn list(
        &mut self,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Entry>, NetlinkError> {
        let frame = self.frame(GET, 0, "list", &[]);
        let pick =
            |reply: seaway_netlink::wire::Reply| Entry::parse(&reply.payload).filter(&wanted);
        self.wire.dump_some(&frame, pick)
    }

    /// Removes one entry, if it is still there.
    pub(super) fn delete(&mut self, entry: &Entry) -> Result<(), NetlinkError> {
        let frame = self.frame(DELETE, NLM_F_ACK, "delete", &entry.key);
        match self.wire.transact(&[frame]) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn frame(&self, kind: u16, flags: u16, op: &'static str, attributes: &[u8]) -> Frame {
        Frame {
            kind,
            flags,
            payload: [&self.header, attributes].concat(),
            op,
            object: "conntrack entries".to_owned(),
        }
    }
}
