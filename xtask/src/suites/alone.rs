//! A second chance, by itself, for the few tests that have failed beside others.
//!
//! Two processors run four tests with daemons at a time, or two emulated machines, and what a
//! test waits for in vain may be time alone. One that fails by itself as well is broken; one
//! that passes counts as passed and is named at the end of the run, to be mended.

use anyhow::Result;

use super::cases::Verdict;
use super::program::{Outcome, Program};
use crate::tally::Tally;

/// More of one program are no accident.
const MOST: usize = 3;

/// Runs those that have failed once more, one after the other, and sets the outcome right.
/// Gives the names of those that have passed now.
pub(super) fn again(program: &Program, outcome: &mut Outcome) -> Result<Vec<String>> {
    let mut passed = Vec::new();
    for test in candidates(outcome) {
        println!("-- once more, by itself: {test}");
        let only = ["--exact".to_owned(), test.clone()];
        let second = program.run(&only)?;
        if one_passed(&second) {
            passed.push(test);
        }
    }
    count(outcome, &passed);
    let name = program.name();
    Ok(passed
        .into_iter()
        .map(|test| format!("{name} {test}"))
        .collect())
}

/// The failed tests, if they are few and all that is amiss.
fn candidates(outcome: &Outcome) -> Vec<String> {
    let failed = outcome.verdicts.iter();
    let failed = failed.filter(|(_, verdict)| *verdict == Verdict::Failed);
    let failed: Vec<String> = failed.map(|(test, _)| test.clone()).collect();
    // What a mangled line has named, nobody can run.
    let all_named = usize::try_from(outcome.tally.failed) == Ok(failed.len());
    if !outcome.died && all_named && failed.len() <= MOST {
        failed
    } else {
        Vec::new()
    }
}

/// Neither skipped nor absent.
fn one_passed(second: &Outcome) -> bool {
    let one = Tally {
        passed: 1,
        ..Tally::default()
    };
    second.success && second.tally == one
}

fn count(outcome: &mut Outcome, passed: &[String]) {
    for (test, verdict) in &mut outcome.verdicts {
        if *verdict == Verdict::Failed && passed.contains(test) {
            *verdict = Verdict::PassedAlone;
            outcome.tally.failed -= 1;
            outcome.tally.passed += 1;
        }
    }
    if !passed.is_empty() {
        outcome.success = outcome.tally.failed == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(failed: &[&str], counted: u32) -> Outcome {
        let mut verdicts = vec![("sound".to_owned(), Verdict::Passed)];
        verdicts.extend(failed.iter().map(|f| ((*f).to_owned(), Verdict::Failed)));
        let tally = Tally {
            passed: 1,
            failed: counted,
            skipped: 0,
        };
        Outcome {
            tally,
            success: false,
            died: false,
            verdicts,
        }
    }

    #[test]
    fn a_few_that_failed_are_tried_again() {
        assert_eq!(candidates(&outcome(&["a", "b"], 2)), ["a", "b"]);
        let many = ["a", "b", "c", "d"];
        assert!(candidates(&outcome(&many, 4)).is_empty());
        assert!(candidates(&outcome(&["a"], 2)).is_empty());
        // What comes after a death was not judged, whatever has been named before.
        let mut dead = outcome(&["a"], 1);
        dead.died = true;
        assert!(candidates(&dead).is_empty());
    }

    #[test]
    fn all_have_to_pass() {
        let mut one_left = outcome(&["a", "b"], 2);
        count(&mut one_left, &["a".to_owned()]);
        assert!(!one_left.success);
        assert_eq!(one_left.tally.to_string(), "2 passed, 1 failed, 0 skipped");
        assert_eq!(one_left.verdicts[1].1, Verdict::PassedAlone);
        assert_eq!(one_left.verdicts[2].1, Verdict::Failed);
        count(&mut one_left, &["b".to_owned()]);
        assert!(one_left.success);
        assert_eq!(one_left.tally.to_string(), "3 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_skip_or_nothing_is_no_pass() {
        let second = |passed, skipped| Outcome {
            tally: Tally {
                passed,
                failed: 0,
                skipped,
            },
            success: true,
            died: false,
            verdicts: Vec::new(),
        };
        assert!(one_passed(&second(1, 0)));
        assert!(!one_passed(&second(0, 1)));
        assert!(!one_passed(&second(0, 0)));
    }
}
