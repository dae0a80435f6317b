//! Adds up what libtest says at the end of each test program.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// Ignored ones, and those that said that they cannot run here
    pub(crate) skipped: u32,
}

impl Tally {
    /// Reads a line such as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (_, counts) = line
            .trim()
            .strip_prefix("test result: ")?
            .split_once(". ")?;
        let mut tally = Self::default();
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let (Some(number), Some(word)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u32>() else {
                continue;
            };
            match word {
                "passed" => tally.passed = number,
                "failed" => tally.failed = number,
                "ignored" => tally.skipped = number,
                _ => {}
            }
        }
        Some(tally)
    }

    /// Counts tests as skipped that libtest takes for passed, because they
    /// returned early and said so in the skip log.
    pub(crate) fn reclassify(&mut self, skips: u32) {
        let skips = skips.min(self.passed);
        self.passed -= skips;
        self.skipped += skips;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; \
                    4 filtered out; finished in 0.01s";
        let tally = Tally::from_line(line).unwrap();
        assert_eq!(tally.to_string(), "3 passed, 2 failed, 1 skipped");
        assert_eq!(Tally::from_line("test foo ... ok"), None);
    }

    #[test]
    fn a_skip_is_not_a_pass() {
        let mut tally = Tally {
            passed: 2,
            failed: 0,
            skipped: 1,
        };
        tally.reclassify(1);
        assert_eq!(
            tally,
            Tally {
                passed: 1,
                failed: 0,
                skipped: 2
            }
        );
    }
}
