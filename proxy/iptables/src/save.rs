//! Reads what `iptables-save` prints, looking for our chains only.

use std::borrow::Cow;
use std::net::{Ipv6Addr, SocketAddrV6};

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

/// Takes a dump of any number of tables line by line, and keeps our part of it.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    rendered: Tables,
    /// Whether rules are kept in words, too.
    keep: bool,
    /// The one that the lines are of; empty outside of any.
    table: String,
    lines: usize,
    /// The first one counts.
    error: Option<ParseError>,
}

impl Reader {
    /// One that keeps the words of rules, or not.
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// The next line, without its end.
    pub(crate) fn take(&mut self, text: &str) {
        self.lines += 1;
        if self.error.is_none() {
            self.error = self.read(text).err();
        }
    }

    fn read(&mut self, text: &str) -> Result<(), ParseError> {
        if let Some(name) = text.strip_prefix('*') {
            name.clone_into(&mut self.table);
        } else if text == "COMMIT" {
            self.table.clear();
        } else if let Some(table) = incompatible(text) {
            return Err(ParseError::Incompatible { table });
        } else if let Some(line) = ours(text) {
            let table = match self.table.as_str() {
                "" => return Err(self.outside(text)),
                "nat" => &mut self.rendered.nat,
                "filter" => &mut self.rendered.filter,
                // We have nothing there; a namesake is not ours.
                _ => return Ok(()),
            };
            take(table, text, line, self.keep);
        }
        Ok(())
    }

    fn outside(&self, text: &str) -> ParseError {
        ParseError::OutsideTable {
            line: self.lines,
            text: text.chars().take(200).collect(),
        }
    }

    /// What it was.
    pub(crate) fn finish(mut self) -> Result<Tables, ParseError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.table.is_empty() {
            return Err(ParseError::Truncated);
        }
        self.rendered.nat.jumps.sort_unstable();
        self.rendered.filter.jumps.sort_unstable();
        Ok(self.rendered)
    }
}

/// Our part of a whole dump.
#[cfg(test)]
pub(crate) fn parse(dump: &str) -> Result<Tables, ParseError> {
    let mut reader = Reader::new(true);
    dump.lines().for_each(|line| reader.take(line));
    reader.finish()
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
    let rule = text.strip_prefix("-A ")?;
    // A rule without conditions and target has nothing behind its chain.
    let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
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

fn take(table: &mut Table, text: &str, line: Line<'_>, keep: bool) {
    match line {
        Line::Chain(chain) => {
            table.chains.entry(chain.to_owned()).or_default();
        }
        Line::Rule(chain) => {
            let body = table.chains.entry(chain.to_owned()).or_default();
            let text = in_our_words(text);
            let rule = text.get("-A ".len() + chain.len()..).unwrap_or_default();
            if keep {
                body.push(rule);
            } else {
                body.push_forgotten(rule);
            }
        }
        Line::Jump(chain, rule) => table.jumps.push((chain.to_owned(), rule.to_owned())),
    }
}

/// The rule with its addresses as we write them. The C library shows `::192.0.2.1` where
/// Rust has `::c000:201`; a rule must not look changed for that.
fn in_our_words(text: &str) -> Cow<'_, str> {
    if !text.contains("::") {
        return Cow::Borrowed(text);
    }
    let mut quoted = false;
    let words = text.split(' ').map(|word| {
        let outside = !quoted;
        quoted ^= word.matches('"').count() % 2 == 1;
        let ours = outside.then(|| address(word)).flatten();
        ours.map_or(Cow::Borrowed(word), Cow::Owned)
    });
    Cow::Owned(words.collect::<Vec<_>>().join(" "))
}

/// An IPv6 network or an address with its port, if the word is one.
fn address(word: &str) -> Option<String> {
    if let Ok(socket) = word.parse::<SocketAddrV6>() {
        return Some(socket.to_string());
    }
    let (address, prefix) = word.split_once('/')?;
    let address: Ipv6Addr = address.parse().ok()?;
    Some(format!("{address}/{prefix}"))
}

#[cfg(test)]
mod tests;
