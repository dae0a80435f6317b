//! Chains of others that drop what nobody has accepted in them.
//!
//! An accept in our table does not override a drop in another one, so pods of a node with
//! such a chain are cut off by it unless its owner lets them pass. It can only be told.

use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::attributes::Attributes;
use crate::firewall::{Firewall, FirewallError};
use crate::message::{GET_CHAIN, SUBSYSTEM, text};
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
/// `NF_DROP`.
const DROP: u32 = 0;

/// A base chain at the forward hook whose policy is to drop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignDrop {
    /// As `nft` spells it: `ip`, `ip6`, or `inet` for both.
    pub family: &'static str,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
}

impl Firewall {
    /// Other people's chains that drop forwarded packets by their policy. Those of
    /// iptables are not among them: in their FORWARD we have accepts.
    pub fn foreign_drops(&mut self) -> Result<Vec<ForeignDrop>, FirewallError> {
        // Of no family in particular means all.
        let list = Frame {
            kind: (SUBSYSTEM << 8) | GET_CHAIN,
            flags: 0,
            payload: Attributes::after_header(0, 0).finish(),
            op: "chain list",
            object: String::from("all"),
        };
        match self.wire.dump(&list) {
            Ok(replies) => Ok(replies.iter().filter_map(foreign_drop).collect()),
            // Without nf_tables there is nothing.
            Err(error) if error.is_not_found() || error.is_unsupported() => Ok(Vec::new()),
            Err(source) => {
                let family = Family::V4;
                Err(FirewallError::Read { family, source })
            }
        }
    }
}

pub(crate) fn foreign_drop(reply: &Reply) -> Option<ForeignDrop> {
    // NFPROTO_INET, NFPROTO_IPV4 and NFPROTO_IPV6.
    let family = match *reply.payload.first()? {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    let body = reply.payload.get(4..)?;
    let number = |bytes: Vec<u8>| bytes.first_chunk().copied().map(u32::from_be_bytes);
    let hook = find(body, CHAIN_HOOK)?;
    let forwards = find(&hook, HOOK_NUMBER).and_then(number) == Some(FORWARD);
    let drops = find(body, CHAIN_POLICY).and_then(number) == Some(DROP);
    let table = text(&find(body, CHAIN_TABLE)?);
    let chain = text(&find(body, CHAIN_NAME)?);
    let of_iptables = family != "inet" && table == forward::TABLE && chain == "FORWARD";
    let foreign = table != TABLE && !of_iptables;
    (forwards && drops && foreign).then_some(ForeignDrop {
        family,
        table,
        chain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn chains_of_others_that_drop_what_is_forwarded_are_found_and_no_other() {
        let found = |family, table, name, hook, policy| {
            let found = foreign_drop(&chain(family, table, name, hook, policy));
            found.map(|drop| format!("{} {} {}", drop.family, drop.table, drop.chain))
        };
        let forward = Some(FORWARD);
        for (family, name) in [(1, "inet"), (2, "ip"), (10, "ip6")] {
            let expect = format!("{name} guard fw");
            assert_eq!(found(family, "guard", "fw", forward, DROP), Some(expect));
        }
        // inet is not iptables', whatever its name.
        assert!(found(1, "filter", "FORWARD", forward, DROP).is_some());
        for (family, table, name, hook, policy) in [
            (2, "filter", "FORWARD", forward, DROP),
            (10, "filter", "FORWARD", forward, DROP),
            (2, TABLE, "fw", forward, DROP),
            (1, "guard", "fw", forward, 1),
            // Input, a chain without a hook, and that of a bridge.
            (1, "guard", "fw", Some(1), DROP),
            (1, "guard", "fw", None, DROP),
            (7, "guard", "fw", forward, DROP),
        ] {
            assert_eq!(
                found(family, table, name, hook, policy),
                None,
                "{table} {name}"
            );
        }
        let whole = chain(1, "guard", "fw", forward, DROP).payload;
        for length in 0..whole.len() {
            let payload = whole[..length].to_vec();
            foreign_drop(&Reply { kind: 0, payload });
        }
    }
}
