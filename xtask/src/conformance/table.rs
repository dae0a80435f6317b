//! What a person is shown.

use std::fmt::Write as _;

use super::outcome::{Outcome, Verdict};
use super::stock::Stock;

/// How much of a reason is shown; the rest is in the report.
const LONGEST_REASON: usize = 160;

/// The counts of this run and of the stock parts for the same tests, then each test that has
/// failed, and those that disagree otherwise.
pub(super) fn render(label: &str, outcomes: &[Outcome], stock: &Stock) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        writeln!(text, "{words}").expect("a String takes everything");
    };
    line(format_args!("{:<14}{label:>28}{:>8}", "", "stock"));
    for verdict in [Verdict::Passed, Verdict::Failed, Verdict::Skipped] {
        let ours = count(outcomes, |outcome| outcome.verdict == verdict);
        let theirs = count(outcomes, |outcome| stock.of(&outcome.name) == Some(verdict));
        line(format_args!(
            "{:<14}{ours:>28}{theirs:>8}",
            verdict.to_string()
        ));
    }
    let unknown = count(outcomes, |outcome| stock.of(&outcome.name).is_none());
    if unknown > 0 {
        line(format_args!("{:<14}{:>28}{unknown:>8}", "not recorded", ""));
    }
    let failed = |outcome: &&Outcome| outcome.verdict == Verdict::Failed;
    for outcome in outcomes.iter().filter(failed) {
        let theirs = stock.of(&outcome.name);
        let theirs = theirs.map_or_else(|| "not recorded".to_owned(), |word| word.to_string());
        line(format_args!("failed (stock: {theirs})  {}", outcome.name));
        line(format_args!("    {}", short(&outcome.why)));
    }
    let left_out = |outcome: &&Outcome| {
        outcome.verdict == Verdict::Skipped && stock.of(&outcome.name) == Some(Verdict::Passed)
    };
    for outcome in outcomes.iter().filter(left_out) {
        line(format_args!("skipped (stock: passed)  {}", outcome.name));
        line(format_args!("    {}", short(&outcome.why)));
    }
    text
}

fn count(outcomes: &[Outcome], is: impl Fn(&Outcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| is(outcome)).count()
}

fn short(reason: &str) -> String {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}...", &reason[..end]),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict, why: &str) -> Outcome {
        Outcome {
            name: name.to_owned(),
            verdict,
            seconds: 1.0,
            why: why.to_owned(),
        }
    }

    #[test]
    fn the_table_shows_who_fails_what() {
        let mut stock = Stock::default();
        stock.record(&[
            outcome("[sig-network] a", Verdict::Passed, ""),
            outcome("[sig-network] b", Verdict::Passed, ""),
            outcome("[sig-network] c", Verdict::Passed, ""),
            outcome("[sig-network] not run now", Verdict::Passed, ""),
        ]);
        let ours = [
            outcome("[sig-network] a", Verdict::Passed, ""),
            outcome("[sig-network] b", Verdict::Failed, &"x".repeat(200)),
            outcome("[sig-network] c", Verdict::Skipped, "no such thing here"),
            outcome("[sig-network] d", Verdict::Failed, "no answer"),
        ];
        let text = render("kubelet-iptables-seaway", &ours, &stock);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let rows: Vec<String> = lines
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows[..5],
            [
                "kubelet-iptables-seaway stock",
                "passed 1 3",
                "failed 2 0",
                "skipped 1 0",
                "not recorded 1",
            ]
        );
        assert_eq!(lines[5], "failed (stock: passed)  [sig-network] b");
        assert!(lines[6].ends_with("xxx..."), "{}", lines[6]);
        assert_eq!(lines[7], "failed (stock: not recorded)  [sig-network] d");
        assert_eq!(lines[9], "skipped (stock: passed)  [sig-network] c");
    }
}
