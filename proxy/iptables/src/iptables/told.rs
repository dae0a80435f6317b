//! Which failed transactions have been told, so that one that fails in every round fills no log.

use std::sync::{Mutex, PoisonError};

use seaway_proxy_core::desired::Family;

use crate::command::CommandError;
use crate::flavour::Flavour;

/// How each family's transactions failed last, until all of the flavour's go well.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<Vec<(Flavour, Family, String)>>);

impl Told {
    /// Whether they did not fail like this the last time; then it counts as told.
    ///
    /// Numbers do not count: the line that is refused is another one in each transaction.
    pub(super) fn is_news(&self, flavour: Flavour, family: Family, error: &CommandError) -> bool {
        let words = error.to_string().replace(|c: char| c.is_ascii_digit(), "");
        let failure = (flavour, family, words);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&failure) {
            return false;
        }
        told.retain(|(of, within, _)| (*of, *within) != (flavour, family));
        told.push(failure);
        true
    }

    pub(super) fn over(&self, flavour: Flavour) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(of, ..)| *of != flavour);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::process::ExitStatus;

    use super::*;

    fn failed(stderr: &str) -> CommandError {
        CommandError::Failed {
            program: PathBuf::from("iptables-nft-restore"),
            status: ExitStatus::from_raw(2 << 8),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn the_lines_of_a_transaction_are_told_when_it_fails_in_another_way() {
        let told = Told::default();
        let is_news = |family, stderr| told.is_news(Flavour::Nft, family, &failed(stderr));
        for (family, stderr, expected) in [
            (Family::V4, "line 7 failed", true),
            (Family::V4, "line 12 failed", false),
            // Of each family its own.
            (Family::V6, "line 7 failed", true),
            (Family::V4, "line 7 failed", false),
            (Family::V4, "no lock", true),
            (Family::V4, "line 7 failed", true),
            (Family::V6, "line 7 failed", false),
        ] {
            assert_eq!(is_news(family, stderr), expected, "{family} {stderr}");
        }
    }

    #[test]
    fn what_fails_again_after_all_went_well_is_told_again() {
        let told = Told::default();
        let is_news = || told.is_news(Flavour::Nft, Family::V4, &failed("no lock"));
        assert!(is_news());
        // The other flavour's leftovers say nothing of ours.
        told.over(Flavour::Legacy);
        assert!(!is_news());
        told.over(Flavour::Nft);
        assert!(is_news());
    }
}
