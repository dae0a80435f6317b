//! Exponential back-off per key, with kubelet's rules: 10 s doubling to 5 min,
//! forgotten after 10 min of peace.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// The first delay.
pub const INITIAL: Duration = Duration::from_secs(10);
/// The longest delay.
pub const MAX: Duration = Duration::from_mins(5);
/// Without a new failure for this long, the next one starts at [`INITIAL`].
pub const RESET: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    updated: Timestamp,
}

/// Delays by key.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    entries: BTreeMap<String, Entry>,
}

impl Backoff {
    /// Until when `key` has to wait, where it failed at `failed`; `None` if it
    /// need not (any more).
    pub fn waits_until(&self, key: &str, failed: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let entry = self.entries.get(key)?;
        if is_stale(entry, failed) {
            return None;
        }
        let until = failed + entry.delay;
        (until > now).then_some(until)
    }

    /// Current delay of `key`.
    pub fn delay(&self, key: &str) -> Duration {
        self.entries
            .get(key)
            .map_or(Duration::ZERO, |entry| entry.delay)
    }

    /// Notes another attempt: the delay after it is twice the one before.
    pub fn next(&mut self, key: &str, now: Timestamp) {
        let delay = match self.entries.get(key) {
            Some(entry) if !is_stale(entry, now) => (entry.delay * 2).min(MAX),
            _ => INITIAL,
        };
        self.entries.insert(
            key.to_owned(),
            Entry {
                delay,
                updated: now,
            },
        );
    }

    /// Forgets `key`.
    pub fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }
}

fn is_stale(entry: &Entry, at: Timestamp) -> bool {
    at.duration_since(entry.updated).unsigned_abs() > RESET && at > entry.updated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn doubles_to_the_limit() {
        let mut backoff = Backoff::default();
        assert_eq!(
            backoff.waits_until("a", at(0), at(0)),
            None,
            "first restart is immediate"
        );
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoff.next("a", at(0));
            delays.push(backoff.delay("a").as_secs());
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn counts_from_the_failure() {
        let mut backoff = Backoff::default();
        backoff.next("a", at(0));
        assert_eq!(backoff.waits_until("a", at(5), at(6)), Some(at(15)));
        assert_eq!(backoff.waits_until("a", at(5), at(15)), None);
        assert_eq!(
            backoff.waits_until("b", at(5), at(6)),
            None,
            "keys are apart"
        );
    }

    #[test]
    fn ten_minutes_of_peace_reset() {
        let mut backoff = Backoff::default();
        backoff.next("a", at(0));
        backoff.next("a", at(10));
        assert_eq!(backoff.waits_until("a", at(620), at(621)), None);
        backoff.next("a", at(620));
        assert_eq!(backoff.delay("a"), INITIAL);
    }
}
