//! Rules that no packet comes past.
//!
//! A chain may drop without a policy that says so: its last rule does it to whatever comes
//! to it. Only rules without conditions are looked at; what is not understood has some.

use netlink_packet_core::NlasIterator;
use seaway_netlink::wire::Reply;

use crate::expression::{
    ACCEPT, DATA_VERDICT, DROP, EXPRESSION_DATA, EXPRESSION_NAME, IMMEDIATE_DATA, RETURN,
    VERDICT_CODE,
};
use crate::message::{RULE_EXPRESSIONS, text};
use crate::set::find;

/// `NFTA_MATCH_NAME` and `NFTA_TARGET_NAME`, include/uapi/linux/netfilter/nf_tables_compat.h.
const EXTENSION_NAME: u16 = 1;

/// What becomes of every packet that comes to a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Accept,
    /// Whether the sender is told or not.
    Drop,
    /// As the chain's policy says.
    Policy,
}

/// Whether a chain drops what it has not accepted before; `end` is the first of its rules
/// that no packet comes past.
pub(crate) fn drops(policy_drops: bool, end: Option<Fate>) -> bool {
    match end {
        Some(Fate::Accept) => false,
        Some(Fate::Drop) => true,
        Some(Fate::Policy) | None => policy_drops,
    }
}

/// `None`: the rule has a condition, or packets go on behind it.
pub(crate) fn fate(rule: &Reply) -> Option<Fate> {
    let list = find(rule.payload.get(4..)?, RULE_EXPRESSIONS)?;
    for element in NlasIterator::new(list.as_slice()).flatten() {
        let name = text(&find(element.value(), EXPRESSION_NAME)?);
        let data = find(element.value(), EXPRESSION_DATA).unwrap_or_default();
        match name.as_str() {
            "counter" | "log" => {}
            // iptables keeps comments so.
            "match" if is_extension(&data, "comment") => {}
            "reject" => return Some(Fate::Drop),
            "target" if is_extension(&data, "REJECT") => return Some(Fate::Drop),
            "immediate" => return verdict(&data),
            _ => return None,
        }
    }
    None
}

/// Whether it is this match or target of iptables.
fn is_extension(data: &[u8], name: &str) -> bool {
    find(data, EXTENSION_NAME).is_some_and(|found| text(&found) == name)
}

fn verdict(immediate: &[u8]) -> Option<Fate> {
    let verdict = find(&find(immediate, IMMEDIATE_DATA)?, DATA_VERDICT)?;
    let code = find(&verdict, VERDICT_CODE)?;
    match u32::from_be_bytes(*code.first_chunk()?) {
        ACCEPT => Some(Fate::Accept),
        DROP => Some(Fate::Drop),
        RETURN => Some(Fate::Policy),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;
    use crate::expression::{JUMP, LIST_ELEMENT};

    type Expression = (&'static str, Attributes);

    fn rule(expressions: Vec<Expression>) -> Reply {
        let mut list = Attributes::default();
        for (name, data) in expressions {
            let expression = Attributes::default()
                .text(EXPRESSION_NAME, name)
                .nested(EXPRESSION_DATA, &data);
            list = list.nested(LIST_ELEMENT, &expression);
        }
        let rule = Attributes::after_header(2, 0).nested(RULE_EXPRESSIONS, &list);
        let payload = rule.finish();
        Reply { kind: 0, payload }
    }

    fn plain(name: &'static str) -> Expression {
        (name, Attributes::default())
    }

    fn extension(kind: &'static str, name: &str) -> Expression {
        (kind, Attributes::default().text(EXTENSION_NAME, name))
    }

    fn immediate(code: u32) -> Expression {
        let verdict = Attributes::default().number(VERDICT_CODE, code);
        let data = Attributes::default().nested(DATA_VERDICT, &verdict);
        let data = Attributes::default().nested(IMMEDIATE_DATA, &data);
        ("immediate", data)
    }

    #[test]
    fn a_rule_without_conditions_says_what_becomes_of_every_packet() {
        let comment = || extension("match", "comment");
        for (expressions, want) in [
            (vec![plain("counter"), immediate(DROP)], Fate::Drop),
            (vec![immediate(ACCEPT)], Fate::Accept),
            (vec![immediate(RETURN)], Fate::Policy),
            (vec![plain("counter"), plain("reject")], Fate::Drop),
            (vec![plain("log"), immediate(DROP)], Fate::Drop),
            (
                vec![comment(), plain("counter"), extension("target", "REJECT")],
                Fate::Drop,
            ),
        ] {
            let told = format!("{expressions:?}");
            assert_eq!(fate(&rule(expressions)), Some(want), "{told}");
        }
    }

    #[test]
    fn a_rule_with_conditions_or_without_an_end_says_nothing() {
        for expressions in [
            vec![],
            vec![plain("counter")],
            vec![immediate(JUMP)],
            vec![plain("meta"), plain("cmp"), immediate(DROP)],
            vec![extension("match", "conntrack"), plain("reject")],
            vec![plain("limit"), plain("reject")],
            vec![extension("target", "LOG")],
        ] {
            let told = format!("{expressions:?}");
            assert_eq!(fate(&rule(expressions)), None, "{told}");
        }
        let whole = rule(vec![plain("counter"), immediate(DROP)]).payload;
        for length in 0..whole.len() {
            let payload = whole[..length].to_vec();
            assert_eq!(fate(&Reply { kind: 0, payload }), None, "{length}");
        }
    }

    #[test]
    fn the_policy_counts_where_no_rule_ends_the_chain() {
        for policy in [false, true] {
            assert!(drops(policy, Some(Fate::Drop)));
            assert!(!drops(policy, Some(Fate::Accept)));
            assert_eq!(drops(policy, Some(Fate::Policy)), policy);
            assert_eq!(drops(policy, None), policy);
        }
    }
}
