//! Deaths on the way from one state to the other and back, under load.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::wait_until;

use super::flows::MOVED;
use super::mortal::{EACH_PER_SECOND, Mortal};
use super::points::Point;
use crate::load::{Load, Span, failures, pause_until};

/// So many answers of a load are not those alone that its clients had waited for.
const MEANWHILE: u64 = 8;
/// Only what never comes takes as long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of [`EACH_PER_SECOND`], what a machine manages that is busy with deaths beside this.
const LEAST: u64 = 20;

/// A node that is in the state that it is not sent to next.
pub(super) struct Trial<'a> {
    mortal: &'a Mortal,
    /// Of the node itself, and of a pod.
    loads: [Load; 2],
    /// What each state is without any death.
    wanted: [Vec<String>; 2],
    tried: usize,
    killed: usize,
    /// How many have died with some of the flows forgotten and some not.
    halfway: usize,
}

impl<'a> Trial<'a> {
    pub(super) fn new(mortal: &'a Mortal, wanted: [Vec<String>; 2]) -> Self {
        Self {
            mortal,
            loads: mortal.load(),
            wanted,
            tried: 0,
            killed: 0,
            halfway: 0,
        }
    }

    /// Dies there on the way to `state`, stays dead, and begins again.
    pub(super) fn die(&mut self, point: &Point, state: usize, dead: Duration) {
        let staying = self.mortal.send(state);
        self.mortal.change(state);
        self.tried += 1;
        self.killed += usize::from(self.mortal.kill_at(state, point));
        let left = self.mortal.stale(state).len();
        self.halfway += usize::from(left > 0 && left < MOVED);
        self.stay_dead(dead);
        self.is_well(state, &staying, &point.to_string());
    }

    /// The same with a death that comes after some time.
    pub(super) fn die_after(&mut self, time: Duration, state: usize) {
        let staying = self.mortal.send(state);
        self.mortal.change(state);
        let daemon = self.mortal.start(state);
        pause_until(Instant::now() + time);
        daemon.end(Signal::SIGKILL);
        self.is_well(state, &staying, &format!("{time:?}"));
    }

    /// The same without a death.
    pub(super) fn go(&mut self, state: usize) {
        let staying = self.mortal.send(state);
        self.mortal.change(state);
        self.is_well(state, &staying, "no death");
    }

    /// So long at least, and until the node and the pod have been answered meanwhile.
    fn stay_dead(&self, time: Duration) {
        let span = Span::begin(&self.loads);
        pause_until(Instant::now() + time);
        let look = || {
            let answered = span.answered(&self.loads);
            let all = answered.iter().all(|count| *count >= MEANWHILE);
            Ok(if all {
                Ok(())
            } else {
                Err(format!("{answered:?}"))
            })
        };
        wait_until(PATIENCE, "answers while the daemon is dead", look).unwrap();
        if time > Duration::from_secs(1) {
            let rates = span.per_second(&self.loads);
            let flavour = self.mortal.flavour;
            eprintln!(
                "{flavour}: dead for {time:?}, answered {rates:?} a second of {EACH_PER_SECOND}"
            );
            assert!(rates.iter().all(|rate| *rate >= LEAST), "{rates:?}");
        }
    }

    /// The next one brings all to what it should be, and nobody has noticed.
    fn is_well(&self, state: usize, staying: &[String], at: &str) {
        let mortal = self.mortal;
        mortal.assert_is(&mortal.settle(state), &self.wanted[state], at);
        let flavour = mortal.flavour;
        assert_eq!(mortal.stale(state), [""; 0], "{flavour} {at}");
        assert_eq!(mortal.staying(), staying, "{flavour} {at}");
        let failures = failures(&self.loads);
        assert!(failures.is_empty(), "{flavour} {at}: {failures:#?}");
    }

    pub(super) fn end(self) {
        let (tried, killed, halfway) = (self.tried, self.killed, self.halfway);
        let flavour = self.mortal.flavour;
        eprintln!("{flavour}: {killed} of {tried} killed, {halfway} with flows left");
        assert!(killed * 5 >= tried * 4, "{flavour}: {killed} of {tried}");
        assert!(halfway > 0, "{flavour}: none died amid the flows");
        for load in self.loads {
            assert!(load.end() > 100);
        }
    }
}
