//! Rule sets as nfnetlink messages, and rules read back.
//!
//! Numbers are from include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h;
//! the encodings equal what `nft` 1.0.6 sends for the same rules.

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NlasIterator};
use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::TABLE;
use crate::attributes::Attributes;
use crate::expression::expressions;
use crate::ruleset::{Chain, Hook, Rule, Ruleset, keyword};
use crate::set::new_set;

/// `NFNL_SUBSYS_NFTABLES`.
pub(crate) const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
pub(crate) const NEW_TABLE: u16 = 0;
pub(crate) const DELETE_TABLE: u16 = 2;
pub(crate) const NEW_CHAIN: u16 = 3;
pub(crate) const GET_CHAIN: u16 = 4;
pub(crate) const DELETE_CHAIN: u16 = 5;
pub(crate) const NEW_RULE: u16 = 6;
pub(crate) const GET_RULE: u16 = 7;
pub(crate) const DELETE_RULE: u16 = 8;
pub(crate) const GET_GENERATION: u16 = 16;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;

pub(crate) const RULE_TABLE: u16 = 1;
pub(crate) const RULE_CHAIN: u16 = 2;
pub(crate) const RULE_HANDLE: u16 = 3;
pub(crate) const RULE_EXPRESSIONS: u16 = 4;
pub(crate) const RULE_USERDATA: u16 = 7;
/// `NFTNL_UDATA_RULE_COMMENT` of libnftnl.
const USERDATA_COMMENT: u8 = 0;

/// One transaction that makes the chains hold exactly these rules.
pub(crate) fn replace(ruleset: &Ruleset) -> Vec<Frame> {
    batch(replace_frames(ruleset))
}

/// The same as part of a transaction.
pub(crate) fn replace_frames(ruleset: &Ruleset) -> Vec<Frame> {
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
    frames.extend(ruleset.sets.iter().map(|set| new_set(family, set)));
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
    frames
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

/// One transaction that deletes these chains, the last one first.
pub(crate) fn delete_chains(family: Family, chains: &[&'static str]) -> Vec<Frame> {
    let message = |kind, table, name, chain: &str, op| {
        let attributes = Attributes::after_header(number(family), 0)
            .text(table, TABLE)
            .text(name, chain);
        frame(kind, 0, attributes, op, family, chain)
    };
    let flush = |chain: &&str| message(DELETE_RULE, RULE_TABLE, RULE_CHAIN, chain, "chain flush");
    let delete =
        |chain: &&str| message(DELETE_CHAIN, CHAIN_TABLE, CHAIN_NAME, chain, "chain delete");
    let flushes = chains.iter().map(flush);
    batch(flushes.chain(chains.iter().rev().map(delete)).collect())
}

/// Asks for all rules of our table.
pub(crate) fn list_rules(family: Family) -> Frame {
    let table = Attributes::after_header(number(family), 0).text(RULE_TABLE, TABLE);
    frame(GET_RULE, 0, table, "rule list", family, "")
}

/// (chain, comment) of a rule.
pub(crate) type Mark = (String, String);

/// The mark of a rule read back. The kernel filters by table since 4.17;
/// before, other tables' rules are `None` here.
pub(crate) fn mark(reply: &Reply) -> Option<Mark> {
    let (table, chain, comment) = place_and_comment(reply)?;
    (table == TABLE).then_some((chain, comment))
}

/// (table, chain, comment) of a rule read back.
pub(crate) fn place_and_comment(reply: &Reply) -> Option<(String, String, String)> {
    let (mut table, mut chain, mut comment) = (None, None, String::new());
    for attribute in NlasIterator::new(reply.payload.get(4..)?).flatten() {
        match attribute.kind() {
            RULE_TABLE => table = Some(text(attribute.value())),
            RULE_CHAIN => chain = Some(text(attribute.value())),
            RULE_USERDATA => comment = userdata_comment(attribute.value()).unwrap_or_default(),
            _ => {}
        }
    }
    Some((table?, chain?, comment))
}

pub(crate) fn batch(mut frames: Vec<Frame>) -> Vec<Frame> {
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

pub(crate) fn frame(
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
    if let Some(at) = chain.hook.map(Hook::place) {
        let hook = Attributes::default()
            .number(HOOK_NUMBER, at.number)
            .number(HOOK_PRIORITY, at.priority.cast_unsigned());
        attributes = attributes
            .text(CHAIN_TYPE, at.kind)
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
    let expressions = expressions(family, rule);
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

pub(crate) fn comment_userdata(comment: &str) -> Vec<u8> {
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

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
pub(crate) fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

#[cfg(test)]
mod tests;
