//! Reads iptables-nft's rules from the kernel itself, chain by chain.
//!
//! `iptables-nft-save` holds all rules in its memory before it prints one, 700 bytes each.
//! Here a rule is put in words, and of a chain there is left what tells it from others.
//!
//! How iptables writes a rule is its own business, and may be another with its next version.
//! So where something of ours says what is not understood, [`read`] says so instead of
//! guessing, and the caller asks iptables. Where that cannot show the table either, the chain
//! has what no chain of ours has, and is written again.

use std::collections::BTreeMap;

use seaway_netlink::NetlinkError;

use crate::rendered::{Body, Table, Tables, is_ours};

mod attributes;
mod wire;
mod words;

pub(crate) use wire::Kernel;
use wire::Rule;

/// Tables that have rules of ours.
pub(crate) const TABLES: [&str; 2] = ["nat", "filter"];
/// All tables of iptables.
const ALL_TABLES: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];

/// Stands for a rule that has no words, in the body of a chain.
const UNKNOWN: &str = " ?";

/// Our rules of a family.
pub(crate) struct Listing {
    pub(crate) tables: Tables,
    /// No rule is without words.
    pub(crate) is_understood: bool,
}

/// Blocks for about 50 µs a chain.
pub(crate) fn read(kernel: Kernel) -> Result<Listing, NetlinkError> {
    let mut reading = Reading {
        kernel,
        sets: BTreeMap::new(),
        is_understood: true,
    };
    let mut tables = Tables::default();
    for (name, table) in TABLES
        .into_iter()
        .zip([&mut tables.nat, &mut tables.filter])
    {
        for chain in reading.kernel.chains(name)? {
            reading.chain(name, chain, table)?;
        }
        table.jumps.sort_unstable();
    }
    Ok(Listing {
        tables,
        is_understood: reading.is_understood,
    })
}

struct Reading {
    kernel: Kernel,
    /// Names of sets by their numbers, as far as they were met. One that a rule looks into
    /// stays.
    sets: BTreeMap<u16, Option<String>>,
    is_understood: bool,
}

impl Reading {
    fn chain(&mut self, name: &str, chain: String, table: &mut Table) -> Result<(), NetlinkError> {
        let ours = is_ours(&chain);
        // Others' chains may have very many rules.
        let keep = |rule: &[u8]| ours || words::target(rule).is_some_and(is_ours);
        let rules = self.kernel.rules(name, &chain, keep)?;
        if ours {
            let mut body = Body::default();
            for rule in rules {
                match self.words(&rule) {
                    Some(words) => body.push_forgotten(&format!(" {words}")),
                    None => body.push_forgotten(UNKNOWN),
                }
            }
            table.chains.insert(chain, body);
            return Ok(());
        }
        for rule in rules {
            // A jump without words is none that we have written, nor can it be deleted by them.
            if let Some(words) = self.words(&rule) {
                table.jumps.push((chain.clone(), words));
            }
        }
        Ok(())
    }

    fn words(&mut self, rule: &Rule) -> Option<String> {
        let words = self.words_if_known(rule);
        self.is_understood &= words.is_some();
        words
    }

    fn words_if_known(&mut self, rule: &Rule) -> Option<String> {
        // What programs keep there is not known here.
        if rule.has_more {
            return None;
        }
        let Self { kernel, sets, .. } = self;
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

/// Hands over the names of all chains that iptables shows, each behind its table's.
pub(crate) fn each_chain(
    kernel: &mut Kernel,
    mut take: impl FnMut(&str, &str),
) -> Result<(), NetlinkError> {
    for table in ALL_TABLES {
        let chains = kernel.chains(table)?;
        for chain in &chains {
            take(table, chain);
        }
    }
    Ok(())
}
