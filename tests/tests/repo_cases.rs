//! The tables of acceptance cases in docs/ name tests that exist.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// `docs/cases-cni.tsv`: case, tab, FILE::TEST with the file relative to the
/// root and without its extension.
#[test]
fn every_test_that_a_table_names_exists_and_carries_the_number() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let table = root().join("docs/cases-cni.tsv");
    for line in std::fs::read_to_string(&table).unwrap().lines().skip(1) {
        let Some((case, test)) = line.split_once('\t') else {
            wrong.push(format!("{line:?} is not two columns"));
            continue;
        };
        if !seen.insert((case.to_owned(), test.to_owned())) {
            wrong.push(format!("{line:?} is there twice"));
        }
        let (file, name) = test.rsplit_once("::").unwrap_or((test, ""));
        let text = std::fs::read_to_string(root().join(format!("{file}.rs"))).unwrap_or_default();
        if !text.contains(&format!("#[test]\nfn {name}("))
            && !text.contains(&format!("#[test]\n    fn {name}("))
        {
            wrong.push(format!("case {case}: {test} does not exist"));
        }
        if !carries(name, case) {
            wrong.push(format!("case {case}: {name} does not carry the number"));
        }
    }
    assert!(!seen.is_empty() && wrong.is_empty(), "{wrong:#?}");
}

/// `case_1_to_4_...` or `case_14_19_...`.
fn carries(name: &str, case: &str) -> bool {
    let case: u32 = case.parse().unwrap();
    let mut numbers: Vec<u32> = Vec::new();
    let mut range = false;
    for word in name.strip_prefix("case_").unwrap_or_default().split('_') {
        match word.parse() {
            Ok(number) if range => {
                numbers.extend(numbers.last().copied().unwrap_or(number)..=number);
            }
            Ok(number) => numbers.push(number),
            Err(_) if word == "to" => {}
            Err(_) => break,
        }
        range = word == "to";
    }
    numbers.contains(&case)
}

/// No test of a case is left out of the table.
#[test]
fn every_test_of_a_case_is_in_the_table() {
    let table = std::fs::read_to_string(root().join("docs/cases-cni.tsv")).unwrap();
    let mut missing = Vec::new();
    let mut dirs: Vec<PathBuf> = ["cni-plugin/src", "tests/tests/netns_cni"]
        .iter()
        .map(|dir| root().join(dir))
        .collect();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn case_").skip(1);
            for rest in names.map(|rest| rest.split('(').next().unwrap_or_default()) {
                if !table.contains(&format!("::case_{rest}\n")) {
                    missing.push(format!("{}: case_{rest}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
