//! A watch that is taken up again for ever, whatever the API server has answered.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::core::Status;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::WatchResult;

/// The pause after a first failure; each further one doubles it,
const SHORTEST: Duration = Duration::from_millis(800);
/// up to this. As much again comes by chance, so that nodes do not ask all at once: however long
/// the API server was away, it is asked again within 10 s.
const LONGEST: Duration = Duration::from_secs(5);
/// After so long without a failure the next one is a first one, also where nothing has come
/// meanwhile; longer than a pause and what a busy server takes for a list that it gives up.
const CALM: Duration = Duration::from_mins(5);
/// Who was away for so long may have come back with another history, as from a backup. Of that a
/// watch that goes on from a version of the old one is told nothing, until the new one has come
/// as far. The list that is asked for instead is what most servers want by then anyway, since
/// one that has just started remembers nothing of before.
const FORGETFUL: Duration = Duration::from_mins(1);

/// After so long the server ends a watch, and is asked to go on from there: one that does not
/// has died behind something that holds its connections. Each kind costs a server of 5,000
/// nodes some 45 requests a second.
pub(crate) const WATCH: Duration = Duration::from_secs(115);

/// A watch that goes on for ever, with growing pauses after failures, at most 10 s.
///
/// It begins anew with everything where it cannot go on from what came last.
pub fn lasting_watch<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, WatchResult<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = config.timeout(u32::try_from(WATCH.as_secs()).unwrap_or(u32::MAX));
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let served = Arc::new(AtomicBool::new(false));
    let pauses = Pauses::new(served.clone());
    let first = (begin(), Outage::default());
    stream::unfold(first, move |(mut watch, mut outage)| {
        let (begin, served) = (begin.clone(), served.clone());
        async move {
            let next = watch.next().await?;
            // That a list is about to be asked for is no answer yet.
            let is_served = next
                .as_ref()
                .is_ok_and(|event| !matches!(event, Event::Init));
            served.store(is_served, Ordering::Relaxed);
            if is_served {
                outage = Outage::default();
            }
            if next.as_ref().is_err_and(|error| outage.wants_all(error)) {
                watch = begin();
            }
            Some((next, (watch, outage)))
        }
    })
    .backoff(pauses)
    .boxed()
}

/// Whether the server says that it cannot go on from the version that it is asked for: it has
/// forgotten what came next, or has not come so far itself.
///
/// The watcher begins anew if an event says so. If the answer to its request does, it would ask
/// for the same version again and again.
fn cannot_go_on(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => is_of_another_history(status),
        _ => false,
    }
}

fn is_of_another_history(status: &Status) -> bool {
    const GONE: u16 = 410;
    const AHEAD: &str = "ResourceVersionTooLarge";
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == GONE || causes.any(|cause| cause.reason == AHEAD)
}

/// Whether a server that remembers what it was has answered, and refused: to whom it grants no
/// watch or who comes too often. It would not be helped by a list, and its history is the same.
///
/// A watch cache that is not ready says 429, too, but as an object with details.
fn is_there(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) if status.code == 429 => status.details.is_none(),
        kube::Error::Api(status) => status.code == 403,
        _ => false,
    }
}

/// The first and the last attempt to take a watch up again that failed.
#[derive(Default)]
struct Outage(Option<(Instant, Instant)>);

impl Outage {
    /// Whether everything is to be listed anew after this.
    fn wants_all(&mut self, error: &watcher::Error) -> bool {
        match error {
            error if cannot_go_on(error) => true,
            watcher::Error::WatchStartFailed(error) if !is_there(error) => {
                self.lasts(Instant::now())
            }
            _ => false,
        }
    }

    /// Another attempt has failed. Tells whether they have for [`FORGETFUL`], once.
    fn lasts(&mut self, now: Instant) -> bool {
        let since = match self.0 {
            Some((since, last)) if now.duration_since(last) <= FORGETFUL => since,
            _ => now,
        };
        let lasts = now.duration_since(since) > FORGETFUL;
        self.0 = (!lasts).then_some((since, now));
        lasts
    }
}

/// How long nothing is asked after each failure.
struct Pauses {
    lengths: ExponentialBackoff,
    failed: Option<Instant>,
    /// Whether what came last shows that the server serves.
    served: Arc<AtomicBool>,
}

impl Pauses {
    fn new(served: Arc<AtomicBool>) -> Self {
        Self {
            lengths: lengths(),
            failed: None,
            served,
        }
    }

    fn after_failure(&mut self, now: Instant) -> Option<Duration> {
        if self.failed.is_some_and(|at| now.duration_since(at) > CALM) {
            self.lengths = lengths();
        }
        self.failed = Some(now);
        self.lengths.next()
    }
}

fn lengths() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(SHORTEST)
        .with_max_delay(LONGEST)
        .with_jitter()
        .without_max_times()
        .build()
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.after_failure(Instant::now())
    }
}

impl Backoff for Pauses {
    /// Called for whatever is no failure. That a list is about to be asked for is none, either:
    /// with lists that fail the pause would be the first one for ever.
    fn reset(&mut self) {
        if self.served.load(Ordering::Relaxed) {
            self.lengths = lengths();
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    #[test]
    fn pauses_grow_to_ten_seconds_whatever_is_announced_and_begin_anew_when_all_was_well() {
        let served = Arc::new(AtomicBool::new(false));
        let mut pauses = Pauses::new(served.clone());
        let mut now = Instant::now();
        let mut last = Duration::ZERO;
        for n in 0..500 {
            // A list is about to be asked for,
            pauses.reset();
            last = pauses.after_failure(now).unwrap();
            let least = (SHORTEST * 2_u32.pow(n.min(10))).min(LONGEST);
            assert!(last >= least && last <= 2 * LONGEST, "{n}: {last:?}");
            // and the connection takes as long as it may.
            now += last + Duration::from_mins(4);
        }
        assert!(last >= LONGEST);
        now += CALM;
        assert!(pauses.after_failure(now).unwrap() <= 2 * SHORTEST);
        assert!(pauses.after_failure(now).unwrap() > SHORTEST);
        served.store(true, Ordering::Relaxed);
        pauses.reset();
        assert!(pauses.after_failure(now).unwrap() <= 2 * SHORTEST);
    }

    #[test]
    fn an_outage_of_a_minute_is_told_once_a_minute_and_single_failures_never() {
        let mut outage = Outage::default();
        let start = Instant::now();
        let told = |outage: &mut Outage, every: u64, until: u64| {
            let times = (0..=until / every).map(|n| start + Duration::from_secs(n * every));
            times.filter(|now| outage.lasts(*now)).count()
        };
        assert_eq!(told(&mut outage, 10, 60), 0);
        assert_eq!(told(&mut Outage::default(), 10, 200), 2);
        assert_eq!(told(&mut Outage::default(), 90, 3600), 0);
    }

    fn details(causes: Vec<StatusCause>) -> StatusDetails {
        StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes,
            retry_after_seconds: 1,
        }
    }

    #[test]
    fn a_server_that_refuses_is_there_and_one_that_is_not_ready_is_not() {
        let status = |code, details: bool| {
            let status = Status::failure("no", "Refused").with_code(code);
            let details = details.then(|| self::details(Vec::new()));
            kube::Error::Api(Status { details, ..status }.boxed())
        };
        for (code, details, want) in [
            (403, true, true),
            (429, false, true),
            (429, true, false),
            (503, false, false),
            (401, false, false),
        ] {
            assert_eq!(is_there(&status(code, details)), want, "{code} {details}");
        }
    }

    #[test]
    fn another_history_is_told_by_its_code_or_by_its_cause() {
        let status = |code, reason: &str| {
            let cause = StatusCause {
                reason: reason.to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            };
            let details = details(vec![cause]);
            let status = Status::failure("no", "Timeout").with_code(code);
            status.with_details(details).boxed()
        };
        for (code, cause, want) in [
            (410, "", true),
            (504, "ResourceVersionTooLarge", true),
            (504, "", false),
            (401, "", false),
            (403, "", false),
            (503, "", false),
        ] {
            let at_the_start =
                watcher::Error::WatchStartFailed(kube::Error::Api(status(code, cause)));
            assert_eq!(cannot_go_on(&at_the_start), want, "{code} {cause}");
            let later = watcher::Error::WatchError(status(code, cause));
            assert_eq!(cannot_go_on(&later), want, "{code} {cause}");
        }
        assert!(!cannot_go_on(&watcher::Error::NoResourceVersion));
    }
}
