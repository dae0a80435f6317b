//! When a clean-up that has failed is tried again: no change of a Service may come for hours.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first failure; it doubles from one to the next. Everything is read back
/// for it, as for a look for others' changes: nearer than this it would count as one more in
/// vain, and put off the next that finds damage.
const SHORTEST: Duration = Duration::from_secs(30);
/// A kernel without ctnetlink fails for ever.
const LONGEST: Duration = Duration::from_mins(10);

/// Failures in a row, and the end of the pause after the last.
#[derive(Debug, Default)]
pub(super) struct Again {
    failures: u32,
    at: Option<Instant>,
}

impl Again {
    pub(super) fn ended(&mut self, failed: bool) {
        if !failed {
            *self = Self::default();
            return;
        }
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(self.failures));
        self.at = Some(Instant::now() + pause.min(LONGEST));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_is_tried_again_less_and_less_often() {
        let mut again = Again::default();
        assert_eq!(again.at(), None);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            again.ended(true);
            let pause = again.at().map(|at| at - Instant::now());
            pauses.extend(pause.map(|pause| (pause.as_millis() + 500) / 1000));
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 600, 600]);
        again.ended(false);
        assert_eq!(again.at(), None);
    }
}
