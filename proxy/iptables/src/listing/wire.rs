//! Chains and rules of iptables-nft's tables, over nfnetlink.

use netlink_packet_core::NLM_F_ACK;
use seaway_netlink::NetlinkError;
use seaway_netlink::wire::{Frame, Wire};
use seaway_proxy_core::desired::Family;

use super::attributes::{append, encode, find, text};

/// include/uapi/linux/netlink.h
const NETLINK_NETFILTER: isize = 12;
/// `NFNL_SUBSYS_NFTABLES << 8`, with `NFT_MSG_GETCHAIN` and `_GETRULE`.
const GET_CHAIN: u16 = 0x0a04;
const GET_RULE: u16 = 0x0a07;
/// `NFTA_CHAIN_TABLE` and `_NAME`, `NFTA_RULE_TABLE`, `_CHAIN`, `_EXPRESSIONS` and `_USERDATA`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USER_DATA: u16 = 7;
/// `NFNL_SUBSYS_IPSET << 8` with `IPSET_CMD_GET_BYINDEX`, its attributes, and the protocol
/// since when there is this command: include/uapi/linux/netfilter/ipset/ip_set.h.
const SET_BY_INDEX: u16 = 0x060f;
const SET_PROTOCOL: u16 = 1;
const SET_NAME: u16 = 2;
const SET_INDEX: u16 = 11;
const SET_PROTOCOL_SEVEN: u8 = 7;
/// `struct nfgenmsg`
const HEADER: usize = 4;

/// One family's tables, in the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Kernel {
    wire: Wire,
    family: Family,
}

/// What a rule says.
#[derive(Debug)]
pub(crate) struct Rule {
    /// To the kernel.
    pub(crate) expressions: Vec<u8>,
    /// To programs, which the kernel keeps for them: comments of nft, for one.
    pub(crate) has_more: bool,
}

impl Kernel {
    pub(crate) fn open(family: Family) -> Result<Self, NetlinkError> {
        let wire = Wire::open(NETLINK_NETFILTER)?;
        Ok(Self { wire, family })
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Names of a table's chains; none if it does not exist.
    pub(crate) fn chains(&mut self, table: &str) -> Result<Vec<String>, NetlinkError> {
        let frame = self.frame(GET_CHAIN, "chain list", table, &[(CHAIN_TABLE, table)]);
        let chain = |body: &[u8]| {
            // Not every kernel leaves out other tables' chains.
            let here = find(body, CHAIN_TABLE).and_then(text) == Some(table);
            let name = find(body, CHAIN_NAME).and_then(text).filter(|_| here);
            name.map(str::to_owned)
        };
        self.list(&frame, chain)
    }

    /// The rules of a chain, in their order, of which the expressions are to be kept; none if
    /// there is no such chain.
    ///
    /// A chain at a time: for every 32 KiB of an answer about a table the kernel begins it
    /// anew, and whoever changes another one does not spoil the answer.
    pub(crate) fn rules(
        &mut self,
        table: &str,
        chain: &str,
        keep: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Rule>, NetlinkError> {
        let wanted = [(RULE_TABLE, table), (RULE_CHAIN, chain)];
        let frame = self.frame(GET_RULE, "rule list", chain, &wanted);
        let rule = |body: &[u8]| {
            let is = |kind, name| find(body, kind).and_then(text) == Some(name);
            let here = is(RULE_TABLE, table) && is(RULE_CHAIN, chain);
            let expressions = find(body, RULE_EXPRESSIONS).unwrap_or_default();
            (here && keep(expressions)).then(|| Rule {
                expressions: expressions.to_vec(),
                has_more: find(body, RULE_USER_DATA).is_some(),
            })
        };
        self.list(&frame, rule)
    }

    /// The name of the set that rules know by this number; none if there is none.
    pub(crate) fn set_name(&mut self, number: u16) -> Result<Option<String>, NetlinkError> {
        let mut frame = self.frame(SET_BY_INDEX, "ipset show", "by its number", &[]);
        append(&mut frame.payload, SET_PROTOCOL, &[SET_PROTOCOL_SEVEN]);
        append(&mut frame.payload, SET_INDEX, &number.to_be_bytes());
        match self.wire.transact(&[frame]) {
            Ok(replies) => Ok(replies.iter().find_map(|reply| {
                let name = find(reply.payload.get(HEADER..)?, SET_NAME).and_then(text)?;
                Some(name.to_owned())
            })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list<T>(
        &mut self,
        frame: &Frame,
        pick: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let pick = |reply: seaway_netlink::wire::Reply| pick(reply.payload.get(HEADER..)?);
        match self.wire.dump_some(frame, pick) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            listed => listed,
        }
    }

    fn frame(&self, kind: u16, op: &'static str, object: &str, names: &[(u16, &str)]) -> Frame {
        // `NFPROTO_IPV4` and `NFPROTO_IPV6`; version 0, resource 0.
        let mut payload = match self.family {
            Family::V4 => vec![2, 0, 0, 0],
            Family::V6 => vec![10, 0, 0, 0],
        };
        for (kind, name) in names {
            encode(&mut payload, *kind, name);
        }
        Frame {
            kind,
            flags: NLM_F_ACK,
            payload,
            op,
            object: object.to_owned(),
        }
    }
}
