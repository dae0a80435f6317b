//! Accepting pods' packets where somebody drops what is forwarded.
//!
//! Docker and some distributions set the policy of FORWARD to drop. An accept
//! in our own table does not override that, so it goes to where the policy is:
//! to the end of `filter FORWARD` of the iptables that drops, behind
//! everybody's rules. iptables-nft is written by netlink here;
//! iptables-legacy is in [`legacy`](crate::legacy).

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::attributes::Attributes;
use crate::expression::expressions;
use crate::firewall::{Change, FAMILIES, Firewall, FirewallError};
use crate::legacy;
use crate::message::{
    self, DELETE_RULE, GET_CHAIN, GET_RULE, NEW_RULE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_HANDLE,
    RULE_TABLE, RULE_USERDATA, batch, comment_userdata, frame, number,
};
use crate::ruleset::{Action, Match, Rule};
use crate::set::find;

/// Of iptables, whichever flavour.
pub(crate) const TABLE: &str = "filter";
const CHAIN: &str = "FORWARD";
pub(crate) const POD_LINKS: &str = "sw";
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_POLICY: u16 = 5;
/// `NF_DROP`, in network byte order.
const DROP: [u8; 4] = [0; 4];

/// By which our rules in a foreign chain are known.
pub(crate) const COMMENTS: [&str; 2] = ["seaway: from pods", "seaway: to pods"];

/// (match, comment).
const RULES: [(Match, &str); 2] = [
    (Match::InputPrefix(POD_LINKS), COMMENTS[0]),
    (Match::OutputPrefix(POD_LINKS), COMMENTS[1]),
];

/// What becomes of pods' packets at the end of FORWARD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwarding {
    /// Its policy is not to drop, or there is no such chain.
    Free,
    /// It drops, but not pods' packets.
    Accepted,
    /// It drops them, too.
    Dropped,
}

impl Firewall {
    /// Makes sure that pods' packets survive a FORWARD whose policy is to
    /// drop, in the flavours of iptables that have one. Where it is not, or
    /// there is no such chain, nothing is done.
    ///
    /// # Errors
    /// One flavour that failed does not keep the other from being done.
    pub fn ensure_forward_accept(&mut self) -> Result<Change, FirewallError> {
        self.ensure_forward_accept_for(&FAMILIES)
    }

    /// The same for some families only.
    ///
    /// # Errors
    /// As [`ensure_forward_accept`](Self::ensure_forward_accept).
    pub fn ensure_forward_accept_for(
        &mut self,
        families: &[Family],
    ) -> Result<Change, FirewallError> {
        let mut change = Change::Unchanged;
        let mut failure = None;
        for &family in families {
            for outcome in [self.ensure_accept(family), legacy::ensure_accept(family)] {
                match outcome {
                    Ok(Change::Changed) => change = Change::Changed,
                    Ok(Change::Unchanged) => {}
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
        }
        failure.map_or(Ok(change), Err)
    }

    /// Programs that would be needed to look at a FORWARD that is in use.
    pub fn missing_programs() -> Vec<&'static str> {
        legacy::missing_programs()
    }

    /// Whether somebody uses iptables-legacy here, which tells nobody of its
    /// changes, so that one has to look.
    pub fn has_silent_rules() -> bool {
        FAMILIES.into_iter().any(legacy::is_in_use)
    }

    /// Takes our accepts out of FORWARD; absent is fine.
    pub(crate) fn remove_forward_accept(&mut self) -> Result<Change, FirewallError> {
        let mut change = Change::Unchanged;
        for family in FAMILIES {
            let ours = self.forward_rules(family)?;
            let frames: Vec<Frame> = ours
                .iter()
                .map(|(_, handle)| delete_rule(family, handle))
                .collect();
            if !frames.is_empty() {
                self.write(family, &batch(frames))?;
                change = Change::Changed;
            }
            if legacy::remove_accept(family)? == Change::Changed {
                change = Change::Changed;
            }
        }
        Ok(change)
    }

    /// What iptables-nft's FORWARD does.
    pub(crate) fn forwarding(&mut self, family: Family) -> Result<Forwarding, FirewallError> {
        if !self.drops_forwarded(family)? {
            return Ok(Forwarding::Free);
        }
        let have = self.forward_rules(family)?;
        let accepted = COMMENTS
            .iter()
            .all(|comment| have.iter().any(|(other, _)| other == comment));
        Ok(if accepted {
            Forwarding::Accepted
        } else {
            Forwarding::Dropped
        })
    }

    fn ensure_accept(&mut self, family: Family) -> Result<Change, FirewallError> {
        if !self.drops_forwarded(family)? {
            return Ok(Change::Unchanged);
        }
        let have = self.forward_rules(family)?;
        let missing: Vec<Frame> = RULES
            .into_iter()
            .filter(|(_, comment)| !have.iter().any(|(other, _)| other == comment))
            .map(|(matches, comment)| add_rule(family, matches, comment))
            .collect();
        if missing.is_empty() {
            return Ok(Change::Unchanged);
        }
        self.write(family, &batch(missing))?;
        Ok(Change::Changed)
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

    /// (comment, handle) of our rules in FORWARD.
    fn forward_rules(&mut self, family: Family) -> Result<Vec<(String, Vec<u8>)>, FirewallError> {
        let attributes = Attributes::after_header(number(family), 0)
            .text(RULE_TABLE, TABLE)
            .text(RULE_CHAIN, CHAIN);
        let list = frame(GET_RULE, 0, attributes, "rule list", family, CHAIN);
        // Before 4.17 the kernel lists all rules; long lists are filtered as they come.
        match self.wire.dump_some(&list, |reply| our_rule(&reply)) {
            Ok(rules) => Ok(rules),
            Err(error) if error.is_not_found() || error.is_unsupported() => Ok(Vec::new()),
            Err(source) => Err(FirewallError::Read { family, source }),
        }
    }
}

pub(crate) fn our_rule(reply: &Reply) -> Option<(String, Vec<u8>)> {
    let (table, chain, comment) = message::place_and_comment(reply)?;
    let ours = table == TABLE && chain == CHAIN && COMMENTS.contains(&comment.as_str());
    let handle = find(reply.payload.get(4..)?, RULE_HANDLE)?;
    ours.then_some((comment, handle))
}

fn add_rule(family: Family, matches: Match, comment: &str) -> Frame {
    let rule = Rule::new(vec![matches], Action::Accept);
    let attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN)
        .nested(RULE_EXPRESSIONS, &expressions(family, &rule))
        .bytes(RULE_USERDATA, &comment_userdata(comment));
    let flags = NLM_F_CREATE | NLM_F_APPEND;
    frame(NEW_RULE, flags, attributes, "rule add", family, comment)
}

fn delete_rule(family: Family, handle: &[u8]) -> Frame {
    let attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN)
        .bytes(RULE_HANDLE, handle);
    frame(DELETE_RULE, 0, attributes, "rule delete", family, CHAIN)
}
