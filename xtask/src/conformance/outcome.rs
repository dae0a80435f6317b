//! What ginkgo's JUnit report says about each test.

use std::fmt;

use anyhow::{Context as _, Result};
use junit_parser::{TestCase, TestStatus};

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// It has found out that it cannot run here.
    Skipped,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Skipped];

    /// The word that [`fmt::Display`] writes.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.to_string() == word)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// One test, or one of the steps around them that has failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// As upstream writes it, without the `[It]` before it
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
    /// The first line of what it says about it; empty when it has passed
    pub(super) why: String,
}

impl Outcome {
    /// Has it shown something?
    pub(super) fn counts(&self) -> bool {
        self.verdict != Verdict::Skipped
    }
}

/// Ginkgo reports every test that there is; those that were not asked for are left out.
///
/// # Errors
/// When it is no JUnit report.
pub(super) fn parse(junit: &str) -> Result<Vec<Outcome>> {
    let suites = junit_parser::from_reader(junit.as_bytes()).context("read the JUnit report")?;
    let cases = suites.suites.iter().flat_map(|suite| &suite.cases);
    Ok(cases.filter_map(outcome).collect())
}

fn outcome(case: &TestCase) -> Option<Outcome> {
    let (verdict, why) = match &case.status {
        TestStatus::Success => (Verdict::Passed, ""),
        TestStatus::Failure(failure) => (Verdict::Failed, failure.message.as_str()),
        TestStatus::Error(error) => (Verdict::Failed, error.message.as_str()),
        // "skipped" alone is one that was not chosen, or is pending.
        TestStatus::Skipped(skipped) => (
            Verdict::Skipped,
            skipped.message.strip_prefix("skipped - ")?,
        ),
    };
    let name = match (case.original_name.strip_prefix("[It] "), verdict) {
        (Some(name), _) => name,
        // The suite's own steps matter when they fail.
        (None, Verdict::Failed) => &case.original_name,
        (None, _) => return None,
    };
    Some(Outcome {
        name: name.trim().to_owned(),
        verdict,
        seconds: case.time,
        why: why.lines().next().unwrap_or_default().trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from a report of ginkgo 2.28.
    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="6" disabled="1" errors="0" failures="2" time="12.5">
 <testsuite name="Kubernetes e2e suite" package="/x" tests="6" disabled="1" skipped="2" errors="0"
   failures="2" time="12.5" timestamp="2026-11-30T00:00:00">
  <properties><property name="SuiteSucceeded" value="false"></property></properties>
  <testcase name="[SynchronizedBeforeSuite]" classname="Kubernetes e2e suite" status="passed" time="1"/>
  <testcase name="[It] [sig-network] Services should serve &lt;one&gt; [Conformance]"
    classname="Kubernetes e2e suite" status="passed" time="6.25">
    <system-err>&gt; Enter [BeforeEach] with &lt;b&gt;</system-err></testcase>
  <testcase name="[It] [sig-network] DNS should fail" classname="Kubernetes e2e suite"
    status="failed" time="3"><failure message="no answer&#xA;after 3 s" type="failed">trace</failure></testcase>
  <testcase name="[It] [sig-apps] not asked for" classname="Kubernetes e2e suite"
    status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
  <testcase name="[It] [sig-network] only on GCE" classname="Kubernetes e2e suite"
    status="skipped" time="0"><skipped message="skipped - Only for providers [gce]"></skipped></testcase>
  <testcase name="[AfterEach] of all" classname="Kubernetes e2e suite"
    status="panicked" time="0"><error message="oh" type="panicked">trace</error></testcase>
 </testsuite>
</testsuites>"#;

    #[test]
    fn each_test_that_was_asked_for_has_an_outcome() {
        let outcome = |name: &str, verdict, seconds, why: &str| Outcome {
            name: name.to_owned(),
            verdict,
            seconds,
            why: why.to_owned(),
        };
        let want = [
            outcome(
                "[sig-network] Services should serve <one> [Conformance]",
                Verdict::Passed,
                6.25,
                "",
            ),
            outcome(
                "[sig-network] DNS should fail",
                Verdict::Failed,
                3.0,
                "no answer",
            ),
            outcome(
                "[sig-network] only on GCE",
                Verdict::Skipped,
                0.0,
                "Only for providers [gce]",
            ),
            outcome("[AfterEach] of all", Verdict::Failed, 0.0, "oh"),
        ];
        assert_eq!(parse(REPORT).unwrap(), want);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(parse("<testsuites><testsuite>").is_err());
    }

    #[test]
    fn verdicts_are_read_as_they_are_written() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::from_word(&verdict.to_string()), Some(verdict));
        }
        assert_eq!(Verdict::from_word("flaky"), None);
    }
}
