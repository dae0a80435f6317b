//! Every acceptance case is a flow, is some other test's, or is known to be open.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use seaway_proxy_core::flows::flows;

/// The numbers that are in use: 218.
const NUMBERS: [RangeInclusive<u16>; 12] = [
    1..=39,
    40..=53,
    60..=79,
    80..=103,
    110..=118,
    120..=136,
    140..=151,
    160..=176,
    180..=190,
    200..=218,
    220..=233,
    240..=261,
];

/// Names of all functions that are tests, in all crates that serve Services.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for folder in ["proxy", "tests/tests"] {
        collect(&root.join(folder), &mut names);
    }
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let function = |line: &str| {
                let rest = line.trim_start();
                let rest = rest.strip_prefix("async ").unwrap_or(rest);
                let (name, _) = rest.strip_prefix("fn ")?.split_once('(')?;
                Some(name.to_owned())
            };
            names.extend(text.lines().filter_map(function));
        }
    }
}

#[test]
fn every_case_is_accounted_for() {
    let flows: BTreeSet<u16> = flows().iter().flat_map(|f| f.cases).copied().collect();
    let tests = tests();
    let mut accounted: BTreeMap<u16, &str> = BTreeMap::new();
    for line in include_str!("cases.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let mut columns = line.split('\t');
        let number: u16 = columns.next().unwrap().parse().unwrap();
        let kind = columns.next().unwrap();
        let text = columns.next().unwrap();
        assert!(
            accounted.insert(number, kind).is_none(),
            "case {number} is there twice"
        );
        match kind {
            "test" => assert!(tests.contains(text), "case {number}: no test {text}"),
            "open" => assert!(
                !flows.contains(&number),
                "case {number} is a flow, not open"
            ),
            other => panic!("case {number}: what is {other}?"),
        }
    }
    // A flow of IPv6 alone.
    let flows: BTreeSet<u16> = flows.into_iter().chain([66]).collect();
    let numbers: BTreeSet<u16> = NUMBERS.into_iter().flatten().collect();
    assert_eq!(numbers.len(), 218);
    let known: BTreeSet<u16> = accounted.keys().copied().chain(flows.clone()).collect();
    let missing: Vec<_> = numbers.difference(&known).collect();
    let unknown: Vec<_> = known.difference(&numbers).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
    let open = accounted.values().filter(|kind| **kind == "open").count();
    eprintln!(
        "{} flows, {} others, {open} open",
        flows.len(),
        accounted.len() - open
    );
}
