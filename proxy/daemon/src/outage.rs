//! What goes on failing is told when it begins and now and then, and not each time.

use std::time::Duration;

use tokio::time::Instant;

/// How often a lasting failure is mentioned.
const REMIND: Duration = Duration::from_secs(30);

/// How something has failed since it last went well.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// What was told within [`REMIND`]: several failures may take turns.
    told: Vec<(String, Instant)>,
}

impl Outage {
    /// Whether this failure is to be told aloud; then it counts as told.
    ///
    /// Numbers in it do not count: one is the line of a transaction that is another each time.
    pub(crate) fn is_news(&mut self, failure: &str) -> bool {
        self.is_news_at(failure, Instant::now())
    }

    fn is_news_at(&mut self, failure: &str, now: Instant) -> bool {
        let words = failure.replace(|c: char| c.is_ascii_digit(), "");
        self.told
            .retain(|(_, at)| now.saturating_duration_since(*at) < REMIND);
        if self.told.iter().any(|(told, _)| *told == words) {
            return false;
        }
        self.told.push((words, now));
        true
    }

    /// It goes well; tells whether it did not before.
    pub(crate) fn over(&mut self) -> bool {
        let lasted = !self.told.is_empty();
        self.told.clear();
        lasted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of these failures is told, by when they come, in seconds.
    fn told<'a>(outage: &mut Outage, failures: &[(u64, &'a str)]) -> Vec<(u64, &'a str)> {
        let start = Instant::now();
        let mut told = failures.to_vec();
        told.retain(|&(at, text)| outage.is_news_at(text, start + Duration::from_secs(at)));
        told
    }

    #[test]
    fn a_failure_that_lasts_is_told_at_once_and_every_half_a_minute() {
        let failures: Vec<_> = (0..=61).map(|at| (at, "refused")).collect();
        let told = told(&mut Outage::default(), &failures);
        assert_eq!(told, [(0, "refused"), (30, "refused"), (60, "refused")]);
    }

    #[test]
    fn another_failure_is_told_at_once_and_two_that_take_turns_are_told_once_each() {
        let failures = [
            (0, "no lock"),
            (1, "refused"),
            (2, "no lock"),
            (3, "refused"),
        ];
        let told = told(&mut Outage::default(), &failures);
        assert_eq!(told, failures[..2]);
    }

    #[test]
    fn another_line_of_a_transaction_is_the_same_failure() {
        let failures = [(0, "line 7 failed"), (1, "line 12 failed")];
        assert_eq!(told(&mut Outage::default(), &failures), failures[..1]);
    }

    #[test]
    fn what_fails_again_after_it_went_well_is_told() {
        let mut outage = Outage::default();
        assert!(!outage.over());
        for _ in 0..2 {
            let failures = [(0, "refused"), (1, "refused")];
            assert_eq!(told(&mut outage, &failures), failures[..1]);
            assert!(outage.over());
        }
        assert!(!outage.over());
    }
}
