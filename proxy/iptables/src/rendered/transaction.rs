//! What has to be written, and in which portions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::strangers::is_stranger;
use super::{Body, MARK_OUTSIDE, OWN_PREFIXES, TREE_PREFIXES, Table, Tables};

impl Tables {
    /// Inputs for `iptables-restore --noflush` that lead from `self` to `want`, one
    /// after the other, each of about `most` rules where that is possible.
    /// None if there is nothing to do.
    ///
    /// What comes before the last one are chains that nobody leads to yet: Services' own, and
    /// all of the trees but their roots.
    /// In the last one, filter comes first, so that a Service which loses its last
    /// endpoint is refused from the moment it is no longer translated: the packet
    /// would leave by the default route otherwise.
    /// Chains of [strangers](Self::strangers) are only emptied.
    pub(crate) fn transactions_to<'a>(
        &'a self,
        want: &'a Self,
        most: usize,
    ) -> Vec<Transaction<'a>> {
        let mut nat = self.nat.changes_to(&want.nat);
        let mut filter = self.filter.changes_to(&want.filter);
        let new = filter.split_off(most, &self.filter).into_iter();
        let mut all: Vec<_> = new.map(Transaction::of_filter).collect();
        let new = nat.split_off(most, &self.nat).into_iter();
        all.extend(new.map(Transaction::of_nat));
        let last = Transaction { filter, nat };
        if !last.is_empty() {
            all.push(last);
        }
        all
    }
}

/// What is written at once; shown as the input of `iptables-restore --noflush`.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    filter: Changes<'a>,
    nat: Changes<'a>,
}

impl<'a> Transaction<'a> {
    fn of_nat(nat: Changes<'a>) -> Self {
        Self {
            filter: Changes::default(),
            nat,
        }
    }

    fn of_filter(filter: Changes<'a>) -> Self {
        Self {
            filter,
            nat: Changes::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.filter.is_empty() && self.nat.is_empty()
    }
}

impl fmt::Display for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, changes) in [("filter", &self.filter), ("nat", &self.nat)] {
            if !changes.is_empty() {
                write!(f, "*{name}\n{changes}COMMIT\n")?;
            }
        }
        Ok(())
    }
}

/// What is to be written in a table.
#[derive(Debug, Default)]
struct Changes<'a> {
    /// Chains that are new or different, with their rules.
    changed: Vec<Change<'a>>,
    gone: Vec<&'a String>,
    /// Whole lines.
    jumps: String,
}

/// A chain and its rules.
type Change<'a> = (&'a String, &'a Body);

impl Changes<'_> {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty() && self.jumps.is_empty()
    }

    /// Takes the chains out that are not in `have` and are not where a way begins, as many
    /// changes of about `most` rules, unless all of it is less.
    fn split_off(&mut self, most: usize, have: &Table) -> Vec<Self> {
        let rules = self.changed.iter().map(|(_, body)| body.rules());
        if rules.sum::<usize>() <= most {
            return Vec::new();
        }
        let mut parts = Parts::new(most);
        for prefix in std::iter::once(MARK_OUTSIDE).chain(OWN_PREFIXES) {
            let new = |chain: &str| chain.starts_with(prefix) && !have.chains.contains_key(chain);
            let new = self.changed.extract_if(.., |(chain, _)| new(chain));
            for change in new {
                parts.push(change);
            }
        }
        let is_inner = |chain: &str| TREE_PREFIXES.iter().any(|prefix| chain.starts_with(prefix));
        let new = |chain: &str| is_inner(chain) && !have.chains.contains_key(chain);
        let new = self.changed.extract_if(.., |(chain, _)| new(chain));
        for change in children_first(new.collect()) {
            parts.push(change);
        }
        parts.all
    }
}

/// Changes of about as many rules each.
struct Parts<'a> {
    all: Vec<Changes<'a>>,
    most: usize,
    /// How many more the last one has room for.
    room: usize,
}

impl<'a> Parts<'a> {
    fn new(most: usize) -> Self {
        Self {
            all: Vec::new(),
            most,
            room: 0,
        }
    }

    fn push(&mut self, change: Change<'a>) {
        if self.room == 0 {
            self.all.push(Changes::default());
            self.room = self.most;
        }
        self.room = self.room.saturating_sub(change.1.rules());
        let part = self.all.last_mut().expect("one has been pushed");
        part.changed.push(change);
    }
}

/// In such an order that each is there, with its rules, before another leads to it. To make
/// them all without rules first would empty those that somebody has made meanwhile.
fn children_first(chains: Vec<Change<'_>>) -> Vec<Change<'_>> {
    let names: BTreeMap<&str, usize> = chains
        .iter()
        .map(|(name, _)| name.as_str())
        .zip(0..)
        .collect();
    // A child's depth is greater than that of each of its parents; trees have no circles.
    let mut depths = vec![0; chains.len()];
    let mut next: Vec<usize> = (0..chains.len()).collect();
    for depth in 1..=chains.len() {
        let mut below = BTreeSet::new();
        for (chain, body) in next.iter().map(|index| chains[*index]) {
            let lines = body.lines(chain);
            below.extend(lines.filter_map(|line| names.get(target(&line)?).copied()));
        }
        if below.is_empty() {
            break;
        }
        for index in &below {
            depths[*index] = depth;
        }
        next = below.into_iter().collect();
    }
    let mut ordered: Vec<_> = depths.into_iter().zip(chains).collect();
    ordered.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    ordered.into_iter().map(|(_, chain)| chain).collect()
}

/// Where a rule leads to.
fn target(rule: &str) -> Option<&str> {
    let (_, rest) = rule
        .rsplit_once(" -g ")
        .or_else(|| rule.rsplit_once(" -j "))?;
    rest.split_whitespace().next()
}

impl fmt::Display for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Declaring a chain creates it, or empties it.
        let changed = self.changed.iter().map(|&(chain, _)| chain);
        for chain in changed.chain(self.gone.iter().copied()) {
            writeln!(f, ":{chain} - [0:0]")?;
        }
        for (chain, body) in &self.changed {
            for line in body.lines(chain) {
                writeln!(f, "{line}")?;
            }
        }
        f.write_str(&self.jumps)?;
        // One of another version may be held by what we do not know, which must not hold us.
        for chain in self.gone.iter().filter(|chain| !is_stranger(chain)) {
            writeln!(f, "-X {chain}")?;
        }
        Ok(())
    }
}

impl Table {
    fn changes_to<'a>(&'a self, want: &'a Self) -> Changes<'a> {
        let known = |&(chain, body): &(&String, &Body)| self.chains.get(chain) == Some(body);
        let wanted = |chain: &&String| want.chains.contains_key(*chain);
        let changed: Vec<_> = want.chains.iter().filter(|chain| !known(chain)).collect();
        // To write nothing for something would empty a chain.
        let mut bodies = changed.iter().map(|(_, body)| body);
        assert!(
            bodies.all(|body| body.is_whole()),
            "what differs has been rendered in full"
        );
        Changes {
            changed,
            gone: self.chains.keys().filter(|chain| !wanted(chain)).collect(),
            jumps: self.jump_changes(want),
        }
    }

    /// Missing jumps come first in their chain, before others' rules that
    /// accept or translate; superfluous ones go.
    fn jump_changes(&self, want: &Self) -> String {
        let mut lines = String::new();
        let all: BTreeSet<_> = self.jumps.iter().chain(&want.jumps).collect();
        for jump in all {
            let count = |jumps: &[(String, String)]| jumps.iter().filter(|j| *j == jump).count();
            let (have, needed) = (count(&self.jumps), count(&want.jumps));
            let (chain, rule) = jump;
            for _ in have..needed {
                push_line(&mut lines, format_args!("-I {chain} {rule}"));
            }
            for _ in needed..have {
                push_line(&mut lines, format_args!("-D {chain} {rule}"));
            }
        }
        lines
    }
}

fn push_line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
