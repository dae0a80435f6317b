//! Reads what `iptables-save` prints, looking for our chains only.

use crate::rendered::{Table, Tables, is_ours};

/// Something that `iptables-save` should not print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A rule of ours outside of any `*table`.
    #[error("line {line} belongs to no table: {text:?}")]
    OutsideTable {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// Somebody has put rules into one of iptables' tables that only nft can
    /// show. Nothing of the table is shown then.
    #[error("the {table} table holds something that only nft can show")]
    Incompatible {
        /// `nat` or `filter`
        table: &'static str,
    },
    /// The dump ends in the middle of a table.
    #[error("the dump ends before COMMIT")]
    Truncated,
}

/// Our part of a dump of any number of tables.
pub(crate) fn parse(dump: &str) -> Result<Tables, ParseError> {
    let mut rendered = Tables::default();
    let mut table = "";
    for (index, text) in dump.lines().enumerate() {
        let outside = || ParseError::OutsideTable {
            line: index + 1,
            text: text.chars().take(200).collect(),
        };
        if let Some(name) = text.strip_prefix('*') {
            table = name;
        } else if text == "COMMIT" {
            table = "";
        } else if let Some(table) = incompatible(text) {
            return Err(ParseError::Incompatible { table });
        } else if let Some(line) = ours(text) {
            let table = match table {
                "" => return Err(outside()),
                "nat" => &mut rendered.nat,
                "filter" => &mut rendered.filter,
                // We have nothing there; a namesake is not ours.
                _ => continue,
            };
            take(table, text, line);
        }
    }
    if !table.is_empty() {
        return Err(ParseError::Truncated);
    }
    rendered.nat.jumps.sort_unstable();
    rendered.filter.jumps.sort_unstable();
    Ok(rendered)
}

/// A table of ours that iptables-nft does not show; as 1.8.9 says it, there is
/// no other sign. Believing that it is empty would mean to write all rules again.
/// (A table that "contains incompatible base-chains" is shown without these.)
fn incompatible(text: &str) -> Option<&'static str> {
    let about = text.strip_prefix("# Table `")?;
    let table = ["nat", "filter"]
        .into_iter()
        .find(|name| about.starts_with(&format!("{name}'")))?;
    about.contains(" is incompatible").then_some(table)
}

/// A line that concerns us.
#[derive(Clone, Copy)]
enum Line<'a> {
    Chain(&'a str),
    Rule(&'a str),
    Jump(&'a str, &'a str),
}

fn ours(text: &str) -> Option<Line<'_>> {
    if let Some(declared) = text.strip_prefix(':') {
        let (chain, _) = declared.split_once(' ')?;
        return is_ours(chain).then_some(Line::Chain(chain));
    }
    // A kernel that counts shows "[packets:bytes] -A …" when asked for it only.
    let (chain, rule) = text.strip_prefix("-A ")?.split_once(' ')?;
    if is_ours(chain) {
        return Some(Line::Rule(chain));
    }
    target(rule)
        .filter(|target| is_ours(target))
        .map(|_| Line::Jump(chain, rule))
}

/// Where a rule of somebody else's chain leads. The target is the last option
/// of a rule that leads to a chain, so what a comment says is not looked at.
fn target(rule: &str) -> Option<&str> {
    let (before, target) = rule.rsplit_once(' ')?;
    let option = before.rsplit_once(' ').map_or(before, |(_, option)| option);
    matches!(option, "-j" | "-g").then_some(target)
}

fn take(table: &mut Table, text: &str, line: Line<'_>) {
    match line {
        Line::Chain(chain) => {
            table.chains.entry(chain.to_owned()).or_default();
        }
        Line::Rule(chain) => {
            let body = table.chains.entry(chain.to_owned()).or_default();
            body.push_str(text);
            body.push('\n');
        }
        Line::Jump(chain, rule) => table.jumps.push((chain.to_owned(), rule.to_owned())),
    }
}

#[cfg(test)]
mod tests;
