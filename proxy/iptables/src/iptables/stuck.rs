//! What can neither be taken away nor put right, and harms nobody: to find it again is not to
//! find somebody else's change.

use std::collections::{BTreeMap, BTreeSet};

use seaway_proxy_core::desired::Family;

use crate::rendered::{Rendered, Stranger};
use crate::sets::{Replacement, Sets};

/// Until they are gone or wanted again, or this process ends.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// Other versions' chains that something leads to; they are empty.
    pub(super) chains: BTreeSet<(Family, Stranger)>,
    /// Sets that are not wanted, and somebody uses.
    pub(super) sets: BTreeSet<String>,
    /// Sets that cannot be replaced: what timeout was found, and what it should be.
    altered: BTreeMap<String, [u64; 2]>,
}

impl Stuck {
    pub(super) fn altered(&mut self, replacement: Replacement) {
        self.altered.insert(replacement.name, replacement.timeouts);
    }

    /// What is wanted again is looked after again, and what is not is to be destroyed.
    pub(super) fn want(&mut self, want: &Rendered) {
        let wanted = |name: &String| {
            let mut families = [&want.v4, &want.v6].into_iter();
            families.any(|tables| tables.sets.contains_key(name))
        };
        self.sets.retain(|name| !wanted(name));
        self.altered.retain(|name, _| wanted(name));
    }

    /// Makes of what was read what would be there without.
    pub(super) fn leave_out(&self, have: &mut Rendered) {
        for (family, chain) in &self.chains {
            have.family_mut(*family).leave_out(chain);
        }
        for sets in [&mut have.v4.sets, &mut have.v6.sets] {
            self.leave_out_sets(sets);
        }
    }

    fn leave_out_sets(&self, sets: &mut Sets) {
        sets.retain(|name, _| !self.sets.contains(name));
        for (name, [found, wanted]) in &self.altered {
            if let Some(timeout) = sets.get_mut(name).filter(|timeout| *timeout == found) {
                *timeout = *wanted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(sets: &[(&str, u64)]) -> Rendered {
        let mut rendered = Rendered::default();
        let owned = sets
            .iter()
            .map(|&(name, timeout)| (name.to_owned(), timeout));
        rendered.v4.sets = owned.collect();
        rendered
    }

    #[test]
    fn what_is_stuck_is_no_news_before_it_is_wanted_or_altered_again() {
        let mut stuck = Stuck::default();
        stuck.sets.insert("SEAWAY-4-held".to_owned());
        stuck.altered(Replacement {
            name: "SEAWAY-4-odd".to_owned(),
            timeouts: [7, 60],
            spare: String::new(),
            script: String::new(),
        });
        let read = |stuck: &Stuck, sets: &[(&str, u64)]| {
            let mut have = rendered(sets);
            stuck.leave_out(&mut have);
            have
        };
        let want = rendered(&[("SEAWAY-4-odd", 60)]);
        let found = [("SEAWAY-4-held", 5), ("SEAWAY-4-odd", 7)];
        stuck.want(&want);
        assert_eq!(read(&stuck, &found), want);
        let news = [("SEAWAY-4-odd", 8)];
        assert_eq!(read(&stuck, &news), rendered(&news));
        stuck.want(&rendered(&[("SEAWAY-4-held", 5)]));
        assert_eq!(read(&stuck, &found), rendered(&found));
    }
}
