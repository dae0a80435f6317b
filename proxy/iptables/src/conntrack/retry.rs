//! When a clean-up that has failed is tried again: no change of a Service may come for hours.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// The pause after the first failure; it doubles from one to the next. Everything is read back
/// for it, as for a look for others' changes: nearer than this it would count as one more in
/// vain, and put off the next that finds damage.
const SHORTEST: Duration = Duration::from_secs(30);
/// A kernel without ctnetlink fails for ever.
const LONGEST: Duration = Duration::from_mins(10);

/// The pauses that are left after failures in a row, and the end of the present one.
#[derive(Debug, Default)]
pub(super) struct Again {
    pauses: Option<ExponentialBackoff>,
    at: Option<Instant>,
}

impl Again {
    pub(super) fn ended(&mut self, failed: bool) {
        if !failed {
            *self = Self::default();
            return;
        }
        let pause = self.pauses.get_or_insert_with(pauses).next();
        self.at = pause.map(|pause| Instant::now() + pause);
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(SHORTEST)
        .with_max_delay(LONGEST)
        .without_max_times()
        .build()
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
