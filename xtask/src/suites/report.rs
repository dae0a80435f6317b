//! What libtest prints while it runs, read line by line.

use std::fs;
use std::path::Path;

use super::cases::Verdict;
use crate::tally::Tally;

/// What one program has reported so far.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) tally: Tally,
    verdicts: Vec<(String, Verdict)>,
    /// A test that was named on a line which something else has ended.
    pending: Option<String>,
    skip_log: &'a Path,
    skips: usize,
}

impl<'a> Report<'a> {
    /// Of a program whose tests note in `skip_log` that they cannot run.
    pub(super) fn new(skip_log: &'a Path) -> Self {
        Self {
            tally: Tally::default(),
            verdicts: Vec::new(),
            pending: None,
            skip_log,
            skips: 0,
        }
    }

    /// Takes the next line of the program's output.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(tally) = Tally::from_line(line) {
            self.tally += tally;
        } else if let Some((name, rest)) = named(line) {
            match verdict(rest) {
                Some(verdict) => self.end(name, verdict),
                None => self.pending = Some(name.to_owned()),
            }
        } else if let Some(verdict) = verdict(line)
            && let Some(name) = self.pending.take()
        {
            self.end(&name, verdict);
        }
    }

    /// A test that runs alone runs on the main thread, so its skip does not carry its
    /// name; but it is the one that has just been noted.
    fn end(&mut self, name: &str, verdict: Verdict) {
        let skips = skips(self.skip_log);
        let fresh = skips.iter().skip(self.skips).any(|who| who == "main");
        self.skips = skips.len();
        let verdict = if fresh { Verdict::Skipped } else { verdict };
        self.verdicts.push((name.to_owned(), verdict));
    }

    /// The counts, skips set right, and the verdict of each test.
    pub(super) fn complete(mut self) -> (Tally, Vec<(String, Verdict)>) {
        let skips = skips(self.skip_log);
        self.tally
            .reclassify(u32::try_from(skips.len()).unwrap_or(u32::MAX));
        for (name, verdict) in &mut self.verdicts {
            if skips.contains(name) {
                *verdict = Verdict::Skipped;
            }
        }
        (self.tally, self.verdicts)
    }
}

/// `test NAME ... REST`; a test that shall panic has ` - should panic` after its name.
fn named(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), rest))
}

fn verdict(text: &str) -> Option<Verdict> {
    match text.split(',').next()?.trim() {
        "ok" => Some(Verdict::Passed),
        "FAILED" => Some(Verdict::Failed),
        "ignored" => Some(Verdict::Skipped),
        _ => None,
    }
}

/// Who skipped, from lines such as `SKIPPED NAME (place): reason`. No file means nobody.
fn skips(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let names = text.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("SKIPPED ")?.split_once(" (")?;
        Some(name.to_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_gets_its_verdict() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("skips");
        let mut report = Report::new(&log);
        report.line("running 5 tests");
        report.line("test a::one ... ok");
        report.line("test a::two - should panic ... FAILED");
        report.line("test three ... ignored, takes minutes");
        report.line("test four ... a child says something");
        report.line("ok");
        fs::write(&log, "SKIPPED main (a.rs:1:1): no root\n").unwrap();
        report.line("test five ... ok");
        report.line("ok");
        report.line("test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured");
        let (tally, verdicts) = report.complete();
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 2 skipped");
        let want = [
            ("a::one", Verdict::Passed),
            ("a::two", Verdict::Failed),
            ("three", Verdict::Skipped),
            ("four", Verdict::Passed),
            ("five", Verdict::Skipped),
        ];
        let want: Vec<_> = want.map(|(name, v)| (name.to_owned(), v)).into();
        assert_eq!(verdicts, want);
    }
}
