//! Reads iptables-nft's rules from the kernel itself, chain by chain.
//!
//! `iptables-nft-save` holds all rules in its memory before it prints one, 700 bytes each.
//! Here a rule is put in words, and of a chain there is left what tells it from others.
//!
//! How iptables writes a rule is its own business, and may be another with its next version.
//! So where something of ours says what is not understood, [`read`] says so instead of
//! guessing, and the caller asks iptables.

use std::collections::BTreeMap;

use seaway_netlink::NetlinkError;

use crate::rendered::{Body, Table, Tables, is_ours};

mod attributes;
mod wire;
mod words;

pub(crate) use wire::Kernel;
use wire::Rule;

/// Tables that have rules of ours.
const TABLES: [&str; 2] = ["nat", "filter"];
/// All tables of iptables.
const ALL_TABLES: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];

/// Our rules of a family; `None` if one has no words. Blocks for about 50 µs a chain.
pub(crate) fn read(kernel: Kernel) -> Result<Option<Tables>, NetlinkError> {
    let mut reading = Reading {
        kernel,
        sets: BTreeMap::new(),
    };
    let mut tables = Tables::default();
    for (name, table) in TABLES
        .into_iter()
        .zip([&mut tables.nat, &mut tables.filter])
    {
        for chain in reading.kernel.chains(name)? {
            if !reading.chain(name, chain, table)? {
                return Ok(None);
            }
        }
        table.jumps.sort_unstable();
    }
    Ok(Some(tables))
}

struct Reading {
    kernel: Kernel,
    /// Names of sets by their numbers, as far as they were met. One that a rule looks into
    /// stays.
    sets: BTreeMap<u16, Option<String>>,
}

impl Reading {
    /// Tells whether it was understood.
    fn chain(
        &mut self,
        name: &str,
        chain: String,
        table: &mut Table,
    ) -> Result<bool, NetlinkError> {
        let ours = is_ours(&chain);
        // Others' chains may have very many rules.
        let keep = |rule: &[u8]| ours || words::target(rule).is_some_and(is_ours);
        let rules = self.kernel.rules(name, &chain, keep)?;
        if ours {
            let mut body = Body::default();
            for rule in rules {
                let Some(words) = self.words(&rule) else {
                    return Ok(false);
                };
                body.push_forgotten(&format!(" {words}"));
            }
            table.chains.insert(chain, body);
            return Ok(true);
        }
        for rule in rules {
            let Some(words) = self.words(&rule) else {
                return Ok(false);
            };
            table.jumps.push((chain.clone(), words));
        }
        Ok(true)
    }

    fn words(&mut self, rule: &Rule) -> Option<String> {
        // What programs keep there is not known here.
        if rule.has_more {
            return None;
        }
        let Self { kernel, sets } = self;
        let family = kernel.family();
        let mut name = |number| {
            let known = sets.entry(number);
            // What cannot be told leaves the rule without words.
            known
                .or_insert_with(|| kernel.set_name(number).ok().flatten())
                .clone()
        };
        words::of(family, &rule.expressions, &mut name)
    }
}

/// Hands over the names of all chains that iptables shows.
pub(crate) fn each_chain(
    kernel: &mut Kernel,
    mut take: impl FnMut(&str),
) -> Result<(), NetlinkError> {
    for table in ALL_TABLES {
        kernel.chains(table)?.iter().for_each(|chain| take(chain));
    }
    Ok(())
}
