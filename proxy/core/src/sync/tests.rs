#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::fake::Fake;

/// The fake never waits, so one poll is enough.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the fake backend does not wait"),
    }
}

#[test]
fn nothing_to_do_touches_nothing() {
    let mut fake = Fake::new(1, 0);
    let report = now(sync_once(&mut fake, None, &DesiredState::default())).unwrap();
    assert!(!report.changed);
}

#[test]
fn what_is_known_is_not_read_again() {
    // Every step fails, so a round that succeeds has not made one.
    let mut fake = Fake::new(1, 100);
    let have = fake.render(&DesiredState::default());
    let report = now(sync_once(&mut fake, Some(have), &DesiredState::default())).unwrap();
    assert!(!report.changed);
    let failed = now(sync_once(&mut fake, None, &DesiredState::default())).unwrap_err();
    assert!(!failed.wanted_change, "nothing is known of the kernel");
}

/// What it holds is always another thing; what was settled is remembered.
struct Failing {
    /// Where nothing can be written, if not in both.
    only_in: Option<Family>,
    fails: bool,
    settled: Vec<Family>,
}

impl Backend for Failing {
    type Rendered = String;

    fn name(&self) -> &'static str {
        "failing"
    }

    fn families(&self) -> &'static [Family] {
        &Family::ALL
    }

    fn render(&self, _desired: &DesiredState) -> String {
        "wanted".to_owned()
    }

    async fn read_back(&mut self) -> Result<String, BackendError> {
        Ok("held".to_owned())
    }

    async fn apply(&mut self, _have: &String, _want: &String) -> Result<(), BackendError> {
        if !self.fails {
            return Ok(());
        }
        let error = BackendError::new("write", crate::backend::Retry::Backoff);
        Err(error.only_in(self.only_in))
    }

    async fn settle(&mut self, _desired: &DesiredState, written: &[Family]) -> Vec<Settled> {
        self.settled = written.to_vec();
        let one = |&family: &Family| Settled {
            family,
            took: std::time::Duration::ZERO,
            removed: 1,
        };
        written.iter().map(one).collect()
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}

#[test]
fn only_what_is_written_is_settled_and_a_failure_tells_of_it() {
    let cases = [
        (None, &[][..]),
        (Some(Family::V4), &[Family::V6][..]),
        (Some(Family::V6), &[Family::V4][..]),
    ];
    for (only_in, want) in cases {
        let mut failing = Failing {
            only_in,
            fails: true,
            settled: Family::ALL.to_vec(),
        };
        let failed = now(sync_once(&mut failing, None, &DesiredState::default())).unwrap_err();
        assert_eq!(failing.settled, want);
        let told: Vec<Family> = failed.settled.iter().map(|one| one.family).collect();
        assert_eq!(told, want);
        assert!(failed.wanted_change);
        assert_eq!(failed.error.family(), only_in);
        failing.fails = false;
        now(sync_once(&mut failing, None, &DesiredState::default())).unwrap();
        assert_eq!(failing.settled, Family::ALL);
    }
}
