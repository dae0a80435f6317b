//! What is said of failures, as the log shows it.

use std::fs;

use tracing::Level;
use tracing::subscriber::with_default;

use super::*;

/// The levels of the lines that come of these failures, in a row.
fn levels(failures: &[(&str, Retry)]) -> Vec<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(log.reopen().unwrap())
        .finish();
    with_default(subscriber, || {
        let mut outage = Outage::default();
        for (n, (why, retry)) in (0..).zip(failures) {
            let error = BackendError::new("write the rules", *retry).because(*why);
            log_failure("glass", &error, n, &mut outage);
        }
    });
    let lines = fs::read_to_string(log.path()).unwrap();
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    lines.lines().map(first).collect()
}

#[test]
fn the_same_failure_again_is_nothing_for_the_operator() {
    let lines = [3, 4, 5].map(|line| format!("line {line} failed"));
    let failures = lines.each_ref().map(|why| (why.as_str(), Retry::Backoff));
    assert_eq!(levels(&failures), ["WARN", "DEBUG", "DEBUG"]);
    let failures = [("no such program", Retry::Never); 2];
    assert_eq!(levels(&failures), ["ERROR", "DEBUG"]);
}

#[test]
fn another_failure_is_told_beside_the_first() {
    let failures = ["refused", "no lock", "refused"].map(|why| (why, Retry::Backoff));
    assert_eq!(levels(&failures), ["WARN", "WARN", "DEBUG"]);
}
