//! What the stock parts do with each test, recorded in a file of this tree.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::outcome::{Outcome, Verdict};

const HEADER: &str = "# What kubelet, kube-proxy (iptables) and the reference CNI plugins do with \
upstream's tests in our fixture.\n# Written by `cargo xtask conformance --agent kubelet \
--service-proxy kube-proxy --record`.\n";

/// The recorded verdicts, by the test's name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stock(BTreeMap<String, Verdict>);

impl Stock {
    /// Reads the file; there may be none yet.
    ///
    /// # Errors
    /// When it cannot be read; naming the line, when that is the reason.
    pub(super) fn load(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| format!("read {}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().zip(1..);
        let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let verdicts = lines.map(|(line, number)| {
            line.split_once('\t')
                .and_then(|(word, name)| Some((name.to_owned(), Verdict::from_word(word)?)))
                .with_context(|| format!("line {number} is not VERDICT, tab, NAME: {line}"))
        });
        verdicts.collect::<Result<_>>().map(Self)
    }

    fn render(&self) -> String {
        let lines = self.0.iter();
        let lines = lines.map(|(name, verdict)| format!("{verdict}\t{name}\n"));
        std::iter::once(HEADER.to_owned()).chain(lines).collect()
    }

    /// # Errors
    /// When it cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        fs::write(path, self.render()).with_context(|| format!("write {}", path.display()))
    }

    /// Takes over what has run now; what has not keeps its verdict.
    pub(super) fn record(&mut self, outcomes: &[Outcome]) {
        let tests = outcomes.iter().filter(|outcome| is_test(outcome));
        self.0
            .extend(tests.map(|outcome| (outcome.name.clone(), outcome.verdict)));
    }

    /// What is known of a test.
    pub(super) fn of(&self, name: &str) -> Option<Verdict> {
        self.0.get(name).copied()
    }

    /// Is this one to be mended? A failure, unless the stock parts are known to fail as well;
    /// and a test that they pass, while here it has found that it cannot run.
    pub(super) fn does_better(&self, outcome: &Outcome) -> bool {
        let theirs = self.of(&outcome.name);
        match outcome.verdict {
            Verdict::Passed => false,
            Verdict::Failed => theirs != Some(Verdict::Failed),
            Verdict::Skipped => theirs == Some(Verdict::Passed),
        }
    }
}

/// Names of tests begin with the group that owns them; the suite's own steps do not.
fn is_test(outcome: &Outcome) -> bool {
    outcome.name.starts_with("[sig-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict) -> Outcome {
        Outcome {
            name: name.to_owned(),
            verdict,
            seconds: 1.0,
            why: String::new(),
        }
    }

    #[test]
    fn a_later_run_changes_what_it_has_run() {
        let mut stock = Stock::default();
        stock.record(&[
            outcome("[sig-network] a", Verdict::Failed),
            outcome("[sig-network] b", Verdict::Skipped),
            outcome("[AfterSuite]", Verdict::Failed),
        ]);
        stock.record(&[outcome("[sig-network] a", Verdict::Passed)]);
        let text = stock.render();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            ["passed\t[sig-network] a", "skipped\t[sig-network] b"]
        );
        assert_eq!(Stock::parse(&text).unwrap(), stock);
        assert_eq!(stock.of("[sig-network] a"), Some(Verdict::Passed));
        assert_eq!(stock.of("[sig-network] c"), None);
    }

    #[test]
    fn what_the_stock_parts_do_better_is_to_be_mended() {
        use Verdict::{Failed, Passed, Skipped};

        let mut stock = Stock::default();
        stock.record(&[Passed, Failed, Skipped].map(|theirs| {
            let name = format!("[sig-network] {theirs}");
            outcome(&name, theirs)
        }));
        // Of each of ours: beside what the stock parts do, the last one beside nothing.
        let rows = [
            (Passed, [false, false, false, false]),
            (Failed, [true, false, true, true]),
            (Skipped, [true, false, false, false]),
        ];
        for (ours, expected) in rows {
            let found = ["passed", "failed", "skipped", "unknown"].map(|theirs| {
                let name = format!("[sig-network] {theirs}");
                stock.does_better(&outcome(&name, ours))
            });
            assert_eq!(found, expected, "{ours}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let error = Stock::parse("# x\npassed a\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
