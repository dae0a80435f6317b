//! The guard that takes back what was done.

use crate::error::Error;
use crate::upkeep::told;

type Step<'a> = Box<dyn FnOnce() -> Result<(), Error> + 'a>;

/// Undo steps of what has been done so far.
///
/// Dropped uncommitted it runs them, the latest first, going on after
/// failures.
#[derive(Default)]
pub(crate) struct Undo<'a> {
    steps: Vec<(String, Step<'a>)>,
}

impl<'a> Undo<'a> {
    /// Remembers how to take back what was just done; `what` is for errors.
    pub(crate) fn push(
        &mut self,
        what: impl Into<String>,
        step: impl FnOnce() -> Result<(), Error> + 'a,
    ) {
        self.steps.push((what.into(), Box::new(step)));
    }

    /// What was done stays.
    pub(crate) fn commit(mut self) {
        self.steps.clear();
    }

    /// Takes back everything and adds to the failure what could not be.
    pub(crate) fn after(mut self, failure: Error) -> Error {
        let undo = self.roll_back();
        if undo.is_empty() {
            failure
        } else {
            Error::NotUndone {
                failure: Box::new(failure),
                undo,
            }
        }
    }

    fn roll_back(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        while let Some((what, step)) = self.steps.pop() {
            if let Err(error) = step() {
                failures.push(format!("{what}: {}", told(&error)));
            }
        }
        failures
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for failure in self.roll_back() {
            eprintln!("Not undone: {failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn step(log: &RefCell<Vec<u32>>, n: u32, ok: bool) -> impl FnOnce() -> Result<(), Error> {
        move || {
            log.borrow_mut().push(n);
            if ok {
                Ok(())
            } else {
                Err(Error::Check {
                    what: format!("step {n}"),
                })
            }
        }
    }

    #[test]
    fn steps_run_in_reverse_and_all_of_them() {
        let log = RefCell::default();
        let mut undo = Undo::default();
        undo.push("a", step(&log, 1, true));
        undo.push("b", step(&log, 2, false));
        undo.push("c", step(&log, 3, true));
        let error = undo.after(Error::Check {
            what: "cause".into(),
        });
        assert_eq!(*log.borrow(), [3, 2, 1]);
        assert_eq!(error.to_string(), "check: cause");
        assert!(error.details().contains("not undone: b: check: step 2"));
    }

    #[test]
    fn committed_steps_stay_and_dropped_ones_do_not() {
        let log = RefCell::default();
        let mut undo = Undo::default();
        undo.push("a", step(&log, 1, true));
        undo.commit();
        assert!(log.borrow().is_empty());
        let mut undo = Undo::default();
        undo.push("a", step(&log, 2, true));
        drop(undo);
        assert_eq!(*log.borrow(), [2]);
    }
}
