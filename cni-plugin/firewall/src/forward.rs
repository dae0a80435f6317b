//! Accepting pods' packets where somebody drops what is forwarded.
//!
//! Docker and some distributions set the policy of FORWARD to drop. An accept
//! in our own table does not override that, so it goes to where the policy is:
//! to the end of `filter FORWARD` of iptables-nft, behind everybody's rules.

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use seaway_netlink::Family;

use crate::attributes::Attributes;
use crate::expression::expressions;
use crate::firewall::{Change, FAMILIES, Firewall, FirewallError};
use crate::message::{
    self, GET_CHAIN, GET_RULE, NEW_RULE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_TABLE, RULE_USERDATA,
    batch, comment_userdata, frame, number,
};
use crate::ruleset::{Action, Match, Rule};
use crate::set::find;

const TABLE: &str = "filter";
const CHAIN: &str = "FORWARD";
const POD_LINKS: &str = "sw";
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_POLICY: u16 = 5;
/// `NF_DROP`, in network byte order.
const DROP: [u8; 4] = [0; 4];

/// (match, comment).
const RULES: [(Match, &str); 2] = [
    (Match::InputPrefix(POD_LINKS), "seaway: from pods"),
    (Match::OutputPrefix(POD_LINKS), "seaway: to pods"),
];

impl Firewall {
    /// Makes sure that pods' packets survive a FORWARD whose policy is to
    /// drop. Where it is not, or there is no such chain, nothing is done.
    pub fn ensure_forward_accept(&mut self) -> Result<Change, FirewallError> {
        let mut change = Change::Unchanged;
        for family in FAMILIES {
            if !self.drops_forwarded(family)? {
                continue;
            }
            let have = self.forward_comments(family)?;
            let missing: Vec<_> = RULES
                .into_iter()
                .filter(|(_, comment)| !have.iter().any(|other| other == comment))
                .map(|(matches, comment)| add_rule(family, matches, comment))
                .collect();
            if !missing.is_empty() {
                self.write(family, &batch(missing))?;
                change = Change::Changed;
            }
        }
        Ok(change)
    }

    fn drops_forwarded(&mut self, family: Family) -> Result<bool, FirewallError> {
        let attributes = Attributes::after_header(number(family), 0)
            .text(CHAIN_TABLE, TABLE)
            .text(CHAIN_NAME, CHAIN);
        let get = frame(GET_CHAIN, 0, attributes, "chain show", family, CHAIN);
        match self.wire.transact(std::slice::from_ref(&get)) {
            Ok(replies) => Ok(replies.iter().any(|reply| {
                let body = reply.payload.get(4..).unwrap_or_default();
                find(body, CHAIN_POLICY).is_some_and(|policy| policy == DROP)
            })),
            Err(error) if error.is_not_found() || error.is_unsupported() => Ok(false),
            Err(source) => Err(FirewallError::Read { family, source }),
        }
    }

    fn forward_comments(&mut self, family: Family) -> Result<Vec<String>, FirewallError> {
        let attributes = Attributes::after_header(number(family), 0)
            .text(RULE_TABLE, TABLE)
            .text(RULE_CHAIN, CHAIN);
        let list = frame(GET_RULE, 0, attributes, "rule list", family, CHAIN);
        let replies = self
            .wire
            .dump(&list)
            .map_err(|source| FirewallError::Read { family, source })?;
        let comments = replies.iter().filter_map(message::place_and_comment);
        Ok(comments
            .filter(|(table, chain, _)| table == TABLE && chain == CHAIN)
            .map(|(_, _, comment)| comment)
            .collect())
    }
}

fn add_rule(family: Family, matches: Match, comment: &str) -> seaway_netlink::wire::Frame {
    let rule = Rule::new(vec![matches], Action::Accept);
    let attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN)
        .nested(RULE_EXPRESSIONS, &expressions(family, &rule))
        .bytes(RULE_USERDATA, &comment_userdata(comment));
    let flags = NLM_F_CREATE | NLM_F_APPEND;
    frame(NEW_RULE, flags, attributes, "rule add", family, comment)
}
