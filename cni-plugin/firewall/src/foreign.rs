//! Chains of others that drop what nobody has accepted in them.
//!
//! An accept in our table does not override a drop in another one, so pods of a node with
//! such a chain are cut off by it unless its owner lets them pass. It can only be told.

use seaway_netlink::wire::{Frame, Reply};
use seaway_netlink::{Family, NetlinkError};

use crate::attributes::Attributes;
use crate::expression::DROP;
use crate::fate::{Fate, drops, fate};
use crate::firewall::{FAMILIES, Firewall, FirewallError};
use crate::message::{
    GET_CHAIN, GET_RULE, RULE_CHAIN, RULE_TABLE, SUBSYSTEM, place_and_comment, text,
};
use crate::passage::Forwarding;
use crate::ruleset::keyword;
use crate::set::find;
use crate::{TABLE, forward};

/// `NFTA_CHAIN_*` and `NFTA_HOOK_HOOKNUM`, include/uapi/linux/netfilter/nf_tables.h.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;
/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;

/// A base chain at the forward hook that drops what it has not accepted: by its policy, or by
/// a rule without conditions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignDrop {
    /// As `nft` spells it: `ip`, `ip6`, or `inet` for both.
    pub family: &'static str,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
}

/// One that may be such.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForwardChain {
    names: ForeignDrop,
    /// `NFPROTO_*`
    protocol: u8,
    policy_drops: bool,
}

impl Firewall {
    /// Other people's chains that drop forwarded packets at their end. In the
    /// FORWARD of iptables we have accepts, so it is among them only where
    /// somebody has put a drop before everything else; that of iptables-legacy,
    /// whose changes nobody hears of, never is.
    pub fn foreign_drops(&mut self) -> Result<Vec<ForeignDrop>, FirewallError> {
        let mut found = match self.dropping_chains() {
            Ok(found) => found,
            // Without nf_tables there is nothing.
            Err(error) if error.is_not_found() || error.is_unsupported() => Vec::new(),
            Err(source) => {
                let family = Family::V4;
                return Err(FirewallError::Read { family, source });
            }
        };
        for family in FAMILIES {
            if self.forwarding(family)? == Forwarding::Stopped {
                found.push(ForeignDrop {
                    family: keyword(family),
                    table: forward::TABLE.to_owned(),
                    chain: forward::CHAIN.to_owned(),
                });
            }
        }
        Ok(found)
    }

    fn dropping_chains(&mut self) -> Result<Vec<ForeignDrop>, NetlinkError> {
        // Of no family in particular means all.
        let payload = Attributes::after_header(0, 0).finish();
        let list = listing(GET_CHAIN, payload, "chain list", String::from("all"));
        let chains = self.wire.dump_some(&list, |reply| foreign_chain(&reply))?;
        let mut found = Vec::new();
        for chain in chains {
            match self.end_of(&chain) {
                Ok(end) if drops(chain.policy_drops, end) => found.push(chain.names),
                Ok(_) => {}
                // It has gone since it was listed.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn end_of(&mut self, chain: &ForwardChain) -> Result<Option<Fate>, NetlinkError> {
        let names = &chain.names;
        let payload = Attributes::after_header(chain.protocol, 0)
            .text(RULE_TABLE, &names.table)
            .text(RULE_CHAIN, &names.chain)
            .finish();
        let object = format!("{} {} {}", names.family, names.table, names.chain);
        let list = listing(GET_RULE, payload, "rule list", object);
        // Before 4.17 the kernel lists all rules.
        let pick = |reply: Reply| fate_in(names, &reply);
        let ends = self.wire.dump_some(&list, pick)?;
        Ok(ends.first().copied())
    }
}

/// As [`fate`], of a rule in this chain.
fn fate_in(names: &ForeignDrop, rule: &Reply) -> Option<Fate> {
    let (table, chain, _) = place_and_comment(rule)?;
    let is_there = table == names.table && chain == names.chain;
    is_there.then(|| fate(rule)).flatten()
}

fn listing(message: u16, payload: Vec<u8>, op: &'static str, object: String) -> Frame {
    Frame {
        kind: (SUBSYSTEM << 8) | message,
        flags: 0,
        payload,
        op,
        object,
    }
}

pub(crate) fn foreign_chain(reply: &Reply) -> Option<ForwardChain> {
    let protocol = *reply.payload.first()?;
    // NFPROTO_INET, NFPROTO_IPV4 and NFPROTO_IPV6.
    let family = match protocol {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    let body = reply.payload.get(4..)?;
    let number = |bytes: Vec<u8>| bytes.first_chunk().copied().map(u32::from_be_bytes);
    let hook = find(body, CHAIN_HOOK)?;
    let forwards = find(&hook, HOOK_NUMBER).and_then(number) == Some(FORWARD);
    let policy_drops = find(body, CHAIN_POLICY).and_then(number) == Some(DROP);
    let table = text(&find(body, CHAIN_TABLE)?);
    let chain = text(&find(body, CHAIN_NAME)?);
    let of_iptables = family != "inet" && table == forward::TABLE && chain == forward::CHAIN;
    let foreign = table != TABLE && !of_iptables;
    let names = ForeignDrop {
        family,
        table,
        chain,
    };
    (forwards && foreign).then_some(ForwardChain {
        names,
        protocol,
        policy_drops,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{EXPRESSION_NAME, LIST_ELEMENT};
    use crate::message::RULE_EXPRESSIONS;

    fn chain(family: u8, table: &str, name: &str, hook: Option<u32>, policy: u32) -> Reply {
        let mut attributes = Attributes::after_header(family, 0)
            .text(CHAIN_TABLE, table)
            .text(CHAIN_NAME, name);
        if let Some(hook) = hook {
            let hook = Attributes::default().number(HOOK_NUMBER, hook).number(2, 0);
            attributes = attributes
                .nested(CHAIN_HOOK, &hook)
                .number(CHAIN_POLICY, policy);
        }
        Reply {
            kind: SUBSYSTEM << 8 | 3,
            payload: attributes.finish(),
        }
    }

    /// Kernels before 4.17 list the rules of all chains whichever is asked for.
    #[test]
    fn rules_of_other_chains_do_not_end_this_one() {
        let names = ForeignDrop {
            family: "inet",
            table: "guard".to_owned(),
            chain: "fw".to_owned(),
        };
        let reject = Attributes::default().text(EXPRESSION_NAME, "reject");
        let list = Attributes::default().nested(LIST_ELEMENT, &reject);
        for (table, chain, want) in [
            ("guard", "fw", Some(Fate::Drop)),
            ("guard", "input", None),
            ("other", "fw", None),
        ] {
            let rule = Attributes::after_header(1, 0)
                .text(RULE_TABLE, table)
                .text(RULE_CHAIN, chain)
                .nested(RULE_EXPRESSIONS, &list);
            let payload = rule.finish();
            let found = fate_in(&names, &Reply { kind: 0, payload });
            assert_eq!(found, want, "{table} {chain}");
        }
    }

    #[test]
    fn chains_of_others_that_see_what_is_forwarded_are_found_and_no_other() {
        let found = |family, table, name, hook, policy| {
            let found = foreign_chain(&chain(family, table, name, hook, policy))?;
            let ForeignDrop {
                family,
                table,
                chain,
            } = found.names;
            let (protocol, drops) = (found.protocol, found.policy_drops);
            Some(format!("{protocol} {family} {table} {chain} {drops}"))
        };
        let forward = Some(FORWARD);
        for (family, name) in [(1, "inet"), (2, "ip"), (10, "ip6")] {
            for (policy, drops) in [(DROP, true), (1, false)] {
                let expect = format!("{family} {name} guard fw {drops}");
                assert_eq!(found(family, "guard", "fw", forward, policy), Some(expect));
            }
        }
        // inet is not iptables', whatever its name.
        assert!(found(1, "filter", "FORWARD", forward, DROP).is_some());
        for (family, table, name, hook) in [
            (2, "filter", "FORWARD", forward),
            (10, "filter", "FORWARD", forward),
            (2, TABLE, "fw", forward),
            // Input, a chain without a hook, and that of a bridge.
            (1, "guard", "fw", Some(1)),
            (1, "guard", "fw", None),
            (7, "guard", "fw", forward),
        ] {
            let found = found(family, table, name, hook, DROP);
            assert_eq!(found, None, "{table} {name}");
        }
        let whole = chain(1, "guard", "fw", forward, DROP).payload;
        for length in 0..whole.len() {
            let payload = whole[..length].to_vec();
            foreign_chain(&Reply { kind: 0, payload });
        }
    }
}
