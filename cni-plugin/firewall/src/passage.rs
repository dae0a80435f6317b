//! Whether pods' packets survive a FORWARD, and where our accepts have to be for that.
//!
//! Decides the same for both flavours of iptables, which read and write it.

use crate::fate::{Fate, drops};
use crate::forward::COMMENTS;

/// What becomes of pods' packets at the end of FORWARD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwarding {
    /// It does not drop, or there is no such chain.
    Free,
    /// It drops, but not pods' packets.
    Accepted,
    /// It drops them, too.
    Dropped,
    /// It drops everything, because somebody has put that before all else: theirs to undo.
    Stopped,
}

/// A rule as far as it matters here; `N` names it to whoever writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notable<N> {
    /// One of our accepts, by its comment.
    Ours(&'static str, N),
    /// One that no packet comes past.
    End(Fate, N),
    /// One, or several in a row, of which it only matters that somebody has them there.
    Other,
}

/// FORWARD, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage<N> {
    pub(crate) policy_drops: bool,
    /// In their order.
    pub(crate) rules: Vec<Notable<N>>,
}

impl<N> Passage<N> {
    pub(crate) fn forwarding(&self) -> Forwarding {
        let end = self.end().map(|(_, fate, _)| fate);
        if !drops(self.policy_drops, end) {
            Forwarding::Free
        } else if self.is_stopped() {
            Forwarding::Stopped
        } else if self.missing().is_empty() {
            Forwarding::Accepted
        } else {
            Forwarding::Dropped
        }
    }

    /// The rule before which our accepts have to come; `None`: behind all others.
    pub(crate) fn before(&self) -> Option<&N> {
        self.end().map(|(_, _, name)| name)
    }

    /// Comments of our accepts that are not there, or that no packet comes to.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let (reached, _) = self.split();
        let is_reached = |comment: &str| ours(reached).any(|(other, _)| other == comment);
        let all = COMMENTS.into_iter();
        all.filter(|comment| !is_reached(comment)).collect()
    }

    /// Of the missing ones those that are there all the same: somebody has put an end before
    /// them.
    pub(crate) fn idle(&self) -> Vec<(&'static str, &N)> {
        let (_, behind) = self.split();
        let missing = self.missing();
        let behind = ours(behind);
        behind
            .filter(|(comment, _)| missing.contains(comment))
            .collect()
    }

    /// Whether these accepts of ours are the last rules before the end.
    pub(crate) fn are_last(&self, comments: &[&str]) -> bool {
        let (reached, _) = self.split();
        let last = reached.iter().rev().map_while(|rule| match rule {
            Notable::Ours(comment, _) => Some(*comment),
            Notable::End(..) | Notable::Other => None,
        });
        let last: Vec<&str> = last.collect();
        comments.iter().all(|comment| last.contains(comment))
    }

    /// Whether it drops everything before all other rules, as people do in an emergency. Where
    /// that is the only rule, it is what others end their chains with.
    fn is_stopped(&self) -> bool {
        matches!(self.rules.as_slice(), [Notable::End(Fate::Drop, _), _, ..])
    }

    fn end(&self) -> Option<(usize, Fate, &N)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find_map(|(place, rule)| match rule {
            Notable::End(fate, name) => Some((place, *fate, name)),
            Notable::Ours(..) | Notable::Other => None,
        })
    }

    /// Before the end, and from it on.
    fn split(&self) -> (&[Notable<N>], &[Notable<N>]) {
        let end = self.end().map(|(place, _, _)| place);
        self.rules.split_at(end.unwrap_or(self.rules.len()))
    }
}

/// (comment, name) of our accepts among these.
pub(crate) fn ours<N>(rules: &[Notable<N>]) -> impl Iterator<Item = (&'static str, &N)> {
    rules.iter().filter_map(|rule| match rule {
        Notable::Ours(comment, name) => Some((*comment, name)),
        Notable::End(..) | Notable::Other => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules in the order of these letters, named by them: our accepts are `f` and `t`, and
    /// `D`, `A` and `P` end the chain; `o` is somebody's.
    fn passage(policy_drops: bool, letters: &str) -> Passage<char> {
        let rule = |letter: char| match letter {
            'f' => Notable::Ours(COMMENTS[0], letter),
            't' => Notable::Ours(COMMENTS[1], letter),
            'D' => Notable::End(Fate::Drop, letter),
            'A' => Notable::End(Fate::Accept, letter),
            'o' => Notable::Other,
            _ => Notable::End(Fate::Policy, letter),
        };
        let rules = letters.chars().map(rule).collect();
        Passage {
            policy_drops,
            rules,
        }
    }

    #[test]
    fn a_chain_that_drops_by_policy_or_by_its_end_needs_both_accepts_before_it() {
        for (policy_drops, letters, want) in [
            (false, "", Forwarding::Free),
            (false, "P", Forwarding::Free),
            (false, "AD", Forwarding::Free),
            (true, "A", Forwarding::Free),
            (true, "", Forwarding::Dropped),
            (true, "P", Forwarding::Dropped),
            (false, "D", Forwarding::Dropped),
            (false, "oDA", Forwarding::Dropped),
            (false, "fD", Forwarding::Dropped),
            (false, "oDft", Forwarding::Dropped),
            (false, "fDt", Forwarding::Dropped),
            (true, "ofoto", Forwarding::Accepted),
            (true, "Pft", Forwarding::Dropped),
            (true, "ft", Forwarding::Accepted),
            (true, "ftD", Forwarding::Accepted),
            (false, "tfD", Forwarding::Accepted),
            (false, "ftDft", Forwarding::Accepted),
        ] {
            let found = passage(policy_drops, letters).forwarding();
            assert_eq!(found, want, "{policy_drops} {letters}");
        }
    }

    #[test]
    fn a_drop_before_all_other_rules_is_somebodys_will_and_as_the_only_rule_it_is_none() {
        for policy_drops in [false, true] {
            for (letters, want) in [
                ("Do", Forwarding::Stopped),
                ("DA", Forwarding::Stopped),
                ("DoD", Forwarding::Stopped),
                ("DoftD", Forwarding::Stopped),
                ("Dft", Forwarding::Stopped),
                ("D", Forwarding::Dropped),
                ("oD", Forwarding::Dropped),
                ("ftDo", Forwarding::Accepted),
                ("AD", Forwarding::Free),
            ] {
                let found = passage(policy_drops, letters).forwarding();
                assert_eq!(found, want, "{policy_drops} {letters}");
            }
        }
    }

    #[test]
    fn accepts_are_the_last_ones_if_nobody_elses_rule_is_between_them_and_the_end() {
        for (letters, want) in [
            ("oftDo", true),
            ("otfD", true),
            ("oft", true),
            ("fotD", false),
            ("ftoD", false),
            ("fto", false),
            ("ftD", true),
            ("fDt", false),
            ("oDft", false),
            ("", false),
        ] {
            let found = passage(false, letters).are_last(&COMMENTS);
            assert_eq!(found, want, "{letters}");
        }
        assert!(passage(false, "fotD").are_last(&COMMENTS[1..]));
    }

    #[test]
    fn what_is_missing_comes_before_the_first_end_and_what_is_behind_it_goes() {
        for (letters, before, missing, idle) in [
            ("", None, "ft", ""),
            ("t", None, "f", ""),
            ("DA", Some('D'), "ft", ""),
            ("fD", Some('D'), "t", ""),
            ("fDft", Some('D'), "t", "t"),
            ("Pft", Some('P'), "ft", "ft"),
            ("ftDft", Some('D'), "", ""),
        ] {
            let chain = passage(true, letters);
            assert_eq!(chain.before().copied(), before, "{letters}");
            let of = |letter: char| COMMENTS[usize::from(letter == 't')];
            let comments: Vec<&str> = missing.chars().map(of).collect();
            assert_eq!(chain.missing(), comments, "{letters}");
            let found: String = chain.idle().iter().map(|(_, name)| **name).collect();
            assert_eq!(found, idle, "{letters}");
        }
    }
}
