//! What rounds leave for the next, and when that is.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use seaway_proxy_core::backend::Retry;
use seaway_proxy_core::{Compiler, Node};
use tokio::time::Instant;

use super::skips::Skips;
use crate::config::SyncConfig;
use crate::outage::Outage;

/// When rounds happen. Pauses are counted from the end of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The shortest pause; changes that come meanwhile share the next round.
    pub(crate) pause_min: Duration,
    /// The longest pause after a good round, however long it took.
    pub(crate) pause_max: Duration,
    /// How often at most the kernel is read back to look for drift.
    pub(crate) read_back_min: Duration,
    /// How often at least.
    pub(crate) read_back_max: Duration,
    /// How often at most somebody else's changes make it be read back.
    pub(crate) look_min: Duration,
    /// The first pause after a failed round; it doubles from failure to failure.
    pub(crate) retry_min: Duration,
    /// The longest pause after a failed round: kube-proxy's syncPeriod.
    pub(crate) retry_max: Duration,
    /// How long the first round waits for this node's own object when all else is
    /// known: as long as kube-proxy.
    pub(crate) node_patience: Duration,
}

impl Timing {
    /// A change after a quiet time goes to the kernel at once. In a storm the
    /// loop works at most half of the time. It looks for drift 1 % of the time, or
    /// 0.03 % where drift is noticed, and then at once.
    pub(crate) const DEFAULT: Self = Self {
        pause_min: Duration::from_millis(50),
        pause_max: Duration::from_secs(1),
        read_back_min: Duration::from_secs(30),
        read_back_max: Duration::from_hours(6),
        look_min: Duration::from_secs(1),
        retry_min: Duration::from_millis(500),
        retry_max: Duration::from_secs(30),
        node_patience: Duration::from_secs(30),
    };

    /// With what the operator has chosen.
    pub(crate) fn of(config: &SyncConfig) -> Self {
        let min = config.min_period.unwrap_or(Self::DEFAULT.pause_min);
        Self {
            pause_min: min,
            pause_max: Self::DEFAULT.pause_max.max(min),
            retry_min: Self::DEFAULT.retry_min.min(config.period),
            retry_max: config.period,
            ..Self::DEFAULT
        }
    }

    pub(crate) fn backoff(self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(self.retry_min)
            .with_max_delay(self.retry_max)
            .with_jitter()
            .without_max_times()
            .build()
    }
}

/// How many failures in a row may ask to be retried at once before that is not believed.
const HASTE: u32 = 3;

/// After how many times its own duration a read-back is repeated.
const READ_BACK_PAUSE: u32 = 100;
/// Likewise where drift is noticed.
const WATCHED_PAUSE: u32 = 3000;
/// Likewise a look that has found that others have changed what is ours,
const FOUND_PAUSE: u32 = 4;
/// and one that has found nothing.
const VAIN_PAUSE: u32 = 20;
/// A flush is many changes; the last of them is waited for.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Looks in vain double the pause up to so many times: [`Timing::look_min`] to half a minute.
const DOUBLINGS: u32 = 5;
/// What doubling leads to at most; damage must not wait for longer than a look itself demands.
const LONGEST_DOUBLED: Duration = Duration::from_secs(30);

/// The memory of the sync loop.
pub(super) struct Rounds<R> {
    timing: Timing,
    backoff: ExponentialBackoff,
    pub(super) skips: Skips,
    /// How many of them should concern somebody.
    pub(super) skipped: usize,
    pub(super) compiler: Compiler,
    /// What the kernel holds, as long as that is known.
    pub(super) have: Option<R>,
    /// The last generation that a round has covered.
    pub(super) generation: u64,
    /// The last one that is in the kernel.
    written: Option<u64>,
    pub(super) failures: u32,
    pub(super) outage: Outage,
    last: Duration,
    read_back_at: Instant,
    pub(super) not_before: Instant,
    pub(super) at_latest: Instant,
    looks: Looks,
}

/// Read-backs because somebody else may have changed something.
struct Looks {
    /// Whether one is due.
    due: bool,
    /// Not before the last one is so long ago.
    not_before: Instant,
    /// How many in a row have found nothing.
    in_vain: u32,
    /// When those are forgotten.
    quiet_at: Instant,
}

impl Looks {
    fn ended(&mut self, drift: bool, pause: Duration) {
        let now = Instant::now();
        self.in_vain = match (drift, self.due) {
            (true, _) => 0,
            (false, true) => (self.in_vain + 1).min(DOUBLINGS),
            (false, false) => self.in_vain,
        };
        self.due = false;
        let doubled = pause * (1 << self.in_vain);
        let pause = doubled.min(pause.max(LONGEST_DOUBLED));
        self.not_before = now + pause;
        self.quiet_at = self.not_before + pause;
    }
}

impl<R> Rounds<R> {
    pub(super) fn new(timing: Timing, node_name: &str) -> Self {
        let now = Instant::now();
        Self {
            timing,
            backoff: timing.backoff(),
            skips: Skips::default(),
            skipped: 0,
            compiler: Compiler::new(Node::named(node_name)),
            have: None,
            generation: u64::MAX,
            written: None,
            failures: 0,
            outage: Outage::default(),
            last: Duration::ZERO,
            read_back_at: now,
            not_before: now,
            at_latest: now,
            looks: Looks {
                due: false,
                not_before: now,
                in_vain: 0,
                quiet_at: now,
            },
        }
    }

    pub(super) fn read_back_due(&self, now: Instant) -> bool {
        now >= self.read_back_at
    }

    /// Whether something in it may not be in the kernel.
    pub(super) fn is_news(&self, generation: u64) -> bool {
        self.written != Some(generation)
    }

    pub(super) fn begun(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Somebody else may have changed what is ours: the kernel is to be read back soon.
    pub(super) fn disturbed(&mut self) {
        let now = Instant::now();
        if now >= self.looks.quiet_at {
            self.looks.in_vain = 0;
        }
        self.looks.due = true;
        let at = self.looks.not_before.max(now + DEBOUNCE);
        self.read_back_at = self.read_back_at.min(at);
        // After a failure the next round reads back anyway, when it is its time.
        if self.failures == 0 {
            let at = self.read_back_at.max(self.not_before);
            self.at_latest = self.at_latest.min(at);
        }
    }

    /// The kernel is not as it should be, which after a failure is no wonder.
    pub(super) fn differs(&mut self) {
        if self.failures == 0 {
            self.disturbed();
        }
    }

    /// Whether such a look is due.
    pub(super) fn is_disturbed(&self) -> bool {
        self.looks.due
    }

    /// `drift`: whether a read-back, if there was one, has found somebody else's changes.
    pub(super) fn took(&mut self, drift: Option<bool>, elapsed: Duration, watched: bool) {
        self.last = elapsed;
        let Some(drift) = drift else { return };
        let times = if drift { FOUND_PAUSE } else { VAIN_PAUSE };
        let pause = (elapsed * times).max(self.timing.look_min);
        self.looks.ended(drift, pause);
        let times = if watched {
            WATCHED_PAUSE
        } else {
            READ_BACK_PAUSE
        };
        let (min, max) = (self.timing.read_back_min, self.timing.read_back_max);
        self.read_back_at = Instant::now() + (elapsed * times).clamp(min, max);
    }

    pub(super) fn succeeded(&mut self) {
        self.written = Some(self.generation);
        self.failures = 0;
        self.backoff = self.timing.backoff();
        let pause = self
            .last
            .clamp(self.timing.pause_min, self.timing.pause_max);
        self.not_before = Instant::now() + pause;
        self.at_latest = self.read_back_at.max(self.not_before);
    }

    pub(super) fn failed(&mut self, retry: Retry) {
        self.failures += 1;
        let pause = match retry {
            Retry::Now if self.failures <= HASTE => self.timing.pause_min,
            Retry::Never => self.timing.retry_max,
            _ => self.backoff.next().unwrap_or(self.timing.retry_max),
        };
        // What comes by chance is added to the longest pause, too.
        let pause = pause.min(self.timing.retry_max).max(self.timing.pause_min);
        let now = Instant::now();
        // A change may be what helps, so it is not made to wait as long.
        self.not_before = now + self.timing.pause_max.min(pause);
        self.at_latest = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds() -> Rounds<()> {
        let mut rounds = Rounds::new(Timing::DEFAULT, "a");
        rounds.took(Some(false), Duration::from_millis(10), true);
        rounds.succeeded();
        rounds
    }

    fn seconds(rounds: &Rounds<()>) -> u128 {
        let pause = rounds.at_latest - Instant::now();
        (pause.as_millis() + 500) / 1000
    }

    /// How long until the read-back that a change by others leads to.
    fn pause(rounds: &mut Rounds<()>) -> u128 {
        rounds.disturbed();
        assert!(rounds.is_disturbed());
        seconds(rounds)
    }

    #[tokio::test]
    async fn looks_in_vain_become_rare_and_a_find_makes_them_frequent() {
        let mut rounds = rounds();
        let mut pauses = Vec::new();
        for drift in [false, false, false, false, false, false, true, true] {
            pauses.push(pause(&mut rounds));
            rounds.took(Some(drift), Duration::from_millis(10), true);
            rounds.succeeded();
            assert!(!rounds.is_disturbed());
        }
        pauses.push(pause(&mut rounds));
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 1, 1]);
    }

    #[tokio::test]
    async fn a_look_that_takes_long_is_not_repeated_soon() {
        let mut rounds = rounds();
        for (drift, expected) in [(true, 8), (false, 40), (false, 40), (false, 40)] {
            rounds.took(Some(drift), Duration::from_secs(2), true);
            rounds.succeeded();
            assert_eq!(pause(&mut rounds), expected);
        }
    }

    #[tokio::test]
    async fn what_others_do_makes_no_failure_be_tried_again_sooner() {
        let mut rounds = rounds();
        for _ in 0..8 {
            rounds.failed(Retry::Backoff);
        }
        let before = rounds.at_latest;
        rounds.disturbed();
        assert_eq!(rounds.at_latest, before);
        rounds.took(Some(false), Duration::from_millis(10), true);
        rounds.succeeded();
        assert!(pause(&mut rounds) <= 2);
    }

    #[tokio::test]
    async fn a_retry_keeps_the_operators_shortest_and_longest_pause() {
        let timing = Timing {
            pause_min: Duration::from_secs(10),
            pause_max: Duration::from_secs(10),
            ..Timing::DEFAULT
        };
        for (timing, least) in [(Timing::DEFAULT, 0), (timing, 10)] {
            let mut rounds = Rounds::<()>::new(timing, "a");
            for _ in 0..20 {
                let before = Instant::now();
                rounds.failed(Retry::Backoff);
                let first = rounds.not_before - before;
                assert!(first >= Duration::from_secs(least), "{first:?}");
                let last = rounds.at_latest - Instant::now();
                assert!(last <= Duration::from_secs(30), "{last:?}");
            }
        }
    }

    #[tokio::test]
    async fn what_a_failure_has_left_undone_is_not_somebody_elses_change() {
        let mut rounds = rounds();
        rounds.failed(Retry::Backoff);
        rounds.differs();
        assert!(!rounds.is_disturbed());
        rounds.succeeded();
        rounds.differs();
        assert!(rounds.is_disturbed());
    }

    #[tokio::test]
    async fn a_round_without_a_reading_leaves_the_look_due() {
        let mut rounds = rounds();
        rounds.disturbed();
        rounds.took(None, Duration::from_millis(10), true);
        rounds.succeeded();
        assert!(rounds.is_disturbed());
        assert!(rounds.at_latest < Instant::now() + Duration::from_secs(2));
    }

    #[tokio::test]
    async fn what_is_watched_is_read_back_seldom() {
        for (watched, expected) in [(true, 300), (false, 30)] {
            let mut rounds = rounds();
            rounds.took(Some(false), Duration::from_millis(100), watched);
            rounds.succeeded();
            assert_eq!(seconds(&rounds), expected);
        }
    }
}
