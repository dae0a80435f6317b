//! Accepting pods' packets where somebody drops what is forwarded.
//!
//! Docker and some distributions set the policy of FORWARD to drop, others end
//! it with a rule that rejects everything. An accept in our own table does not
//! override that, so it goes to where the drop is: to the end of `filter
//! FORWARD` of the iptables that drops, behind everybody's rules but the first
//! that no packet comes past. A drop before everybody's rules is somebody's will
//! and left alone. iptables-nft is written by netlink here; iptables-legacy is in
//! [`legacy`](crate::legacy).

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::attributes::Attributes;
use crate::expression::{DROP, expressions};
use crate::fate::fate;
use crate::firewall::{Change, FAMILIES, Firewall, FirewallError};
use crate::legacy;
use crate::message::{
    self, DELETE_RULE, GET_CHAIN, GET_RULE, NEW_RULE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_HANDLE,
    RULE_TABLE, RULE_USERDATA, batch, comment_userdata, frame, number,
};
use crate::passage::{Forwarding, Notable, Passage, ours};
use crate::ruleset::{Action, Match, Rule};
use crate::set::find;

/// Of iptables, whichever flavour.
pub(crate) const TABLE: &str = "filter";
pub(crate) const CHAIN: &str = "FORWARD";
pub(crate) const POD_LINKS: &str = "sw";
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_POLICY: u16 = 5;
/// How many rules it has; nothing can jump to it.
const CHAIN_USE: u16 = 6;
/// `NFTA_RULE_POSITION`, include/uapi/linux/netfilter/nf_tables.h: where a rule shall be, and
/// in lists, which one is before it.
const RULE_POSITION: u16 = 6;
/// Others may take away, between the look and the write, the rule before which ours shall be.
pub(crate) const ATTEMPTS: usize = 3;

/// By which our rules in a foreign chain are known.
pub(crate) const COMMENTS: [&str; 2] = ["seaway: from pods", "seaway: to pods"];

/// (match, comment).
const RULES: [(Match, &str); 2] = [
    (Match::InputPrefix(POD_LINKS), COMMENTS[0]),
    (Match::OutputPrefix(POD_LINKS), COMMENTS[1]),
];

impl Firewall {
    /// Makes sure that pods' packets survive a FORWARD that drops, by its policy
    /// or by a rule without conditions, in the flavours of iptables that have
    /// one. Where none does, or there is no such chain, or where somebody has put
    /// a drop before everything else, nothing is done.
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
            let frames: Vec<Frame> = ours(&self.forward_rules(family)?)
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
        let chain = self.forward_chain(family)?;
        Ok(chain.map_or(Forwarding::Free, |chain| chain.forwarding()))
    }

    fn ensure_accept(&mut self, family: Family) -> Result<Change, FirewallError> {
        let mut attempt = 1;
        loop {
            let chain = self.forward_chain(family)?;
            let frames = chain.map_or_else(Vec::new, |chain| accepts(family, &chain));
            if frames.is_empty() {
                return Ok(Change::Unchanged);
            }
            match self.write(family, &batch(frames)) {
                Err(FirewallError::Write { source, .. })
                    if source.is_not_found() && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                outcome => return outcome.map(|()| Change::Changed),
            }
        }
    }

    /// `None`: iptables-nft has no FORWARD here.
    fn forward_chain(&mut self, family: Family) -> Result<Option<Passage<Vec<u8>>>, FirewallError> {
        let Some((policy_drops, is_empty)) = self.forward_head(family)? else {
            return Ok(None);
        };
        // Rules that a transaction only prepares to delete are not counted any more. Where we
        // may have to write, the list itself says what is there.
        let rules = if is_empty && !policy_drops {
            Vec::new()
        } else {
            self.forward_rules(family)?
        };
        Ok(Some(Passage {
            policy_drops,
            rules,
        }))
    }

    /// Whether the policy is to drop, and whether there are no rules. `None`: no packet comes
    /// to such a chain.
    fn forward_head(&mut self, family: Family) -> Result<Option<(bool, bool)>, FirewallError> {
        let attributes = Attributes::after_header(number(family), 0)
            .text(CHAIN_TABLE, TABLE)
            .text(CHAIN_NAME, CHAIN);
        let get = frame(GET_CHAIN, 0, attributes, "chain show", family, CHAIN);
        match self.wire.transact(std::slice::from_ref(&get)) {
            Ok(replies) => Ok(replies.iter().find_map(|reply| {
                let body = reply.payload.get(4..)?;
                let policy = find(body, CHAIN_POLICY)?;
                let is_empty = find(body, CHAIN_USE).is_some_and(|uses| uses == [0; 4]);
                Some((policy == DROP.to_be_bytes(), is_empty))
            })),
            Err(error) if error.is_not_found() || error.is_unsupported() => Ok(None),
            Err(source) => Err(FirewallError::Read { family, source }),
        }
    }

    /// The rules of FORWARD that matter, named by their handles; others in a row are one.
    fn forward_rules(&mut self, family: Family) -> Result<Vec<Notable<Vec<u8>>>, FirewallError> {
        let attributes = Attributes::after_header(number(family), 0)
            .text(RULE_TABLE, TABLE)
            .text(RULE_CHAIN, CHAIN);
        let list = frame(GET_RULE, 0, attributes, "rule list", family, CHAIN);
        // Before 4.17 the kernel lists all rules; long lists are filtered as they come.
        let mut behind_other = false;
        let pick = |reply: Reply| {
            let rule = notable(&reply)?;
            let is_other = rule == Notable::Other;
            // A list that was interrupted begins anew with the rule that has none before it.
            let is_first = find(reply.payload.get(4..)?, RULE_POSITION).is_none();
            let is_more = is_other && behind_other && !is_first;
            behind_other = is_other;
            (!is_more).then_some(rule)
        };
        match self.wire.dump_some(&list, pick) {
            Ok(rules) => Ok(rules),
            Err(error) if error.is_not_found() || error.is_unsupported() => Ok(Vec::new()),
            Err(source) => Err(FirewallError::Read { family, source }),
        }
    }
}

/// `None`: it is in another chain.
pub(crate) fn notable(reply: &Reply) -> Option<Notable<Vec<u8>>> {
    let (table, chain, comment) = message::place_and_comment(reply)?;
    if table != TABLE || chain != CHAIN {
        return None;
    }
    let handle = find(reply.payload.get(4..)?, RULE_HANDLE)?;
    Some(match COMMENTS.into_iter().find(|ours| *ours == comment) {
        Some(ours) => Notable::Ours(ours, handle),
        None => fate(reply).map_or(Notable::Other, |fate| Notable::End(fate, handle)),
    })
}

/// What has to be written so that pods' packets pass.
fn accepts(family: Family, chain: &Passage<Vec<u8>>) -> Vec<Frame> {
    if chain.forwarding() != Forwarding::Dropped {
        return Vec::new();
    }
    let idle = chain.idle().into_iter();
    let deletions = idle.map(|(_, handle)| delete_rule(family, handle));
    let missing = chain.missing();
    let before = chain.before().map(Vec::as_slice);
    let additions = RULES
        .into_iter()
        .filter(|(_, comment)| missing.contains(comment))
        .map(|(matches, comment)| add_rule(family, matches, comment, before));
    deletions.chain(additions).collect()
}

/// Without a rule `before` which it shall be, it comes last.
fn add_rule(family: Family, matches: Match, comment: &str, before: Option<&[u8]>) -> Frame {
    let rule = Rule::new(vec![matches], Action::Accept);
    let mut attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN)
        .nested(RULE_EXPRESSIONS, &expressions(family, &rule))
        .bytes(RULE_USERDATA, &comment_userdata(comment));
    let mut flags = NLM_F_CREATE;
    match before {
        Some(handle) => attributes = attributes.bytes(RULE_POSITION, handle),
        None => flags |= NLM_F_APPEND,
    }
    frame(NEW_RULE, flags, attributes, "rule add", family, comment)
}

fn delete_rule(family: Family, handle: &[u8]) -> Frame {
    let attributes = Attributes::after_header(number(family), 0)
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN)
        .bytes(RULE_HANDLE, handle);
    frame(DELETE_RULE, 0, attributes, "rule delete", family, CHAIN)
}
