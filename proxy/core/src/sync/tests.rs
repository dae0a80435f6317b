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
    now(sync_once(&mut fake, None, &DesiredState::default())).unwrap_err();
}
