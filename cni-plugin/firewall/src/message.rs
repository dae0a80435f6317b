//! Rule sets as nfnetlink messages, and rules read back.
//!
//! Numbers are from include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h;
//! the encodings equal what `nft` 1.0.6 sends for the same rules.

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NlasIterator};
use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::TABLE;
use crate::attributes::Attributes;
use crate::ruleset::{Action, Chain, Hook, Match, Rule, Ruleset, keyword};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
/// `NF_INET_POST_ROUTING`.
const POSTROUTING: u32 = 4;
/// `NF_IP_PRI_NAT_SRC`.
const PRIORITY_SRCNAT: u32 = 100;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;
/// `NFTNL_UDATA_RULE_COMMENT` of libnftnl.
const USERDATA_COMMENT: u8 = 0;

const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// `NFT_JUMP` and `NFT_RETURN`, which are negative numbers.
const JUMP: u32 = (-3i32).cast_unsigned();
const RETURN: u32 = (-5i32).cast_unsigned();
const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = 1;
const NETWORK_HEADER: u32 = 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
const RANDOM_FULLY: u32 = 1 << 4;

/// One transaction that makes the chains hold exactly these rules.
pub(crate) fn replace(ruleset: &Ruleset) -> Vec<Frame> {
    let family = ruleset.family;
    let table = Attributes::after_header(number(family), 0).text(TABLE_NAME, TABLE);
    let mut frames = vec![frame(
        NEW_TABLE,
        NLM_F_CREATE,
        table,
        "table add",
        family,
        "",
    )];
    for chain in &ruleset.chains {
        frames.push(new_chain(family, chain));
    }
    // Without a rule given, all of the chain's rules are deleted.
    for chain in &ruleset.chains {
        let all = Attributes::after_header(number(family), 0)
            .text(RULE_TABLE, TABLE)
            .text(RULE_CHAIN, chain.name);
        frames.push(frame(
            DELETE_RULE,
            0,
            all,
            "chain flush",
            family,
            chain.name,
        ));
    }
    for chain in &ruleset.chains {
        frames.extend(
            chain
                .rules
                .iter()
                .map(|rule| new_rule(family, chain.name, rule)),
        );
    }
    batch(frames)
}

/// One transaction that deletes our table and everything in it.
pub(crate) fn delete_table(family: Family) -> Vec<Frame> {
    let table = Attributes::after_header(number(family), 0).text(TABLE_NAME, TABLE);
    batch(vec![frame(
        DELETE_TABLE,
        0,
        table,
        "table delete",
        family,
        "",
    )])
}

/// Asks for all rules of our table.
pub(crate) fn list_rules(family: Family) -> Frame {
    let table = Attributes::after_header(number(family), 0).text(RULE_TABLE, TABLE);
    frame(GET_RULE, 0, table, "rule list", family, "")
}

/// (chain, comment) of a rule read back. The kernel filters by table since
/// 4.17; before, other tables' rules are `None` here.
pub(crate) fn mark(reply: &Reply) -> Option<(String, String)> {
    let (mut table, mut chain, mut comment) = (None, None, String::new());
    for attribute in NlasIterator::new(reply.payload.get(4..)?).flatten() {
        match attribute.kind() {
            RULE_TABLE => table = Some(text(attribute.value())),
            RULE_CHAIN => chain = Some(text(attribute.value())),
            RULE_USERDATA => comment = userdata_comment(attribute.value()).unwrap_or_default(),
            _ => {}
        }
    }
    (table? == TABLE).then_some((chain?, comment))
}

fn batch(mut frames: Vec<Frame>) -> Vec<Frame> {
    let limit = |kind| Frame {
        kind,
        flags: 0,
        payload: Attributes::after_header(0, SUBSYSTEM).finish(),
        op: "nftables transaction",
        object: String::from(TABLE),
    };
    frames.insert(0, limit(BATCH_BEGIN));
    frames.push(limit(BATCH_END));
    frames
}

fn frame(
    message: u16,
    flags: u16,
    attributes: Attributes,
    op: &'static str,
    family: Family,
    rest: &str,
) -> Frame {
    let object = format!("{} {TABLE} {rest}", keyword(family))
        .trim_end()
        .to_owned();
    let kind = (SUBSYSTEM << 8) | message;
    Frame {
        kind,
        flags: flags | NLM_F_ACK,
        payload: attributes.finish(),
        op,
        object,
    }
}

fn new_chain(family: Family, chain: &Chain) -> Frame {
    let mut attributes = Attributes::after_header(number(family), 0)
        .text(CHAIN_TABLE, TABLE)
        .text(CHAIN_NAME, chain.name);
    if let Some(Hook::SourceNat) = chain.hook {
        let hook = Attributes::default()
            .number(HOOK_NUMBER, POSTROUTING)
            .number(HOOK_PRIORITY, PRIORITY_SRCNAT);
        attributes = attributes
            .text(CHAIN_TYPE, "nat")
            .number(CHAIN_POLICY, ACCEPT)
            .nested(CHAIN_HOOK, &hook);
    }
    frame(
        NEW_CHAIN,
        NLM_F_CREATE,
        attributes,
        "chain add",
        family,
        chain.name,
    )
}

fn new_rule(family: Family, chain: &str, rule: &Rule) -> Frame {
    let mut expressions = Attributes::default();
    if let Some(matches) = rule.matches {
        expressions = match_network(expressions, matches);
    }
    let expressions = match rule.action {
        Action::Return => verdict(expressions, RETURN, None),
        Action::Jump(target) => verdict(expressions, JUMP, Some(target)),
        Action::Masquerade => expression(
            expressions,
            "masq",
            &Attributes::default().number(1, RANDOM_FULLY),
        ),
    };
    let attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, chain)
        .nested(RULE_EXPRESSIONS, &expressions)
        .bytes(RULE_USERDATA, &comment_userdata(&rule.comment));
    let what = format!("{chain} {}", rule.comment);
    frame(
        NEW_RULE,
        NLM_F_CREATE | NLM_F_APPEND,
        attributes,
        "rule add",
        family,
        &what,
    )
}

/// `payload load; bitwise and mask; cmp eq network`.
fn match_network(list: Attributes, matches: Match) -> Attributes {
    // Offsets of the addresses in the IPv4 and IPv6 headers.
    let (network, offset) = match matches {
        Match::Source(n) => (n, if n.is_ipv4() { 12 } else { 8 }),
        Match::Destination(n) => (n, if n.is_ipv4() { 16 } else { 24 }),
    };
    let (address, mask) = octets(network);
    let length = if network.is_ipv4() { 4 } else { 16 };
    if network.prefix() == 0 {
        return list;
    }
    let load = Attributes::default()
        .number(1, REGISTER_1)
        .number(2, NETWORK_HEADER)
        .number(3, offset)
        .number(4, length);
    let mut list = expression(list, "payload", &load);
    if u32::from(network.prefix()) < length * 8 {
        let zero = vec![0; mask.len()];
        let and = Attributes::default()
            .number(1, REGISTER_1)
            .number(2, REGISTER_1)
            .number(3, length)
            .nested(4, &Attributes::default().bytes(DATA_VALUE, &mask))
            .nested(5, &Attributes::default().bytes(DATA_VALUE, &zero));
        list = expression(list, "bitwise", &and);
    }
    let equal = Attributes::default()
        .number(1, REGISTER_1)
        .number(2, 0)
        .nested(3, &Attributes::default().bytes(DATA_VALUE, &address));
    expression(list, "cmp", &equal)
}

fn verdict(list: Attributes, code: u32, target: Option<&str>) -> Attributes {
    let mut verdict = Attributes::default().number(VERDICT_CODE, code);
    if let Some(target) = target {
        verdict = verdict.text(VERDICT_CHAIN, target);
    }
    let data = Attributes::default().nested(DATA_VERDICT, &verdict);
    let immediate = Attributes::default()
        .number(1, REGISTER_VERDICT)
        .nested(2, &data);
    expression(list, "immediate", &immediate)
}

fn expression(list: Attributes, name: &str, data: &Attributes) -> Attributes {
    let expression = Attributes::default()
        .text(EXPRESSION_NAME, name)
        .nested(EXPRESSION_DATA, data);
    list.nested(LIST_ELEMENT, &expression)
}

fn octets(network: IpNetwork) -> (Vec<u8>, Vec<u8>) {
    match network {
        IpNetwork::V4(n) => (n.network().octets().to_vec(), n.mask().octets().to_vec()),
        IpNetwork::V6(n) => (n.network().octets().to_vec(), n.mask().octets().to_vec()),
    }
}

fn comment_userdata(comment: &str) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).expect("our comments are short");
    let mut bytes = vec![USERDATA_COMMENT, length];
    bytes.extend_from_slice(comment.as_bytes());
    bytes.push(0);
    bytes
}

fn userdata_comment(mut bytes: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = bytes {
        let (value, after) = rest.split_at_checked(usize::from(*length))?;
        if *kind == USERDATA_COMMENT {
            return Some(text(value));
        }
        bytes = after;
    }
    None
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

#[cfg(test)]
mod tests;
