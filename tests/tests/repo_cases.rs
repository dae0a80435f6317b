//! The tables of acceptance cases in docs/ name tests that exist, and every case. That these
//! tests ran and passed is seen by `cargo xtask test`, which writes `target/cases/`.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use seaway_proxy_core::desired::Protocol;
use seaway_proxy_core::flows::flows;
use seaway_testbed::cases::{Row, Stand, TABLES, Table, Without};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn rows(table: &Table) -> Vec<Row> {
    table.read(root()).unwrap_or_else(|e| panic!("{e:#}"))
}

/// Of one table, by case.
fn tests(rows: &[Row]) -> impl Iterator<Item = (&str, &str)> {
    rows.iter().filter_map(|row| match &row.stand {
        Stand::Test(test) => Some((row.case.as_str(), test.as_str())),
        Stand::Open(_) | Stand::Excluded(_) | Stand::Without(..) => None,
    })
}

#[test]
fn every_test_that_a_table_names_exists() {
    let mut wrong = Vec::new();
    for table in TABLES {
        let rows = rows(&table);
        let named: BTreeSet<_> = tests(&rows).map(|(_, test)| test).collect();
        assert!(!named.is_empty());
        for test in named {
            let (file, name) = test.rsplit_once("::").unwrap();
            let text = fs::read_to_string(root().join(format!("{file}.rs"))).unwrap_or_default();
            if !has_test(&text, name) {
                wrong.push(format!("{}: {test} does not exist", table.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `#[test]` or `#[tokio::test…]` above the function, with other attributes between.
fn has_test(text: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            continue;
        }
        let line = line.strip_prefix("async ").unwrap_or(line);
        if is_test && line.starts_with(&format!("fn {name}(")) {
            return true;
        }
        is_test = false;
    }
    false
}

/// A case without a test is there too, and why.
#[test]
fn every_case_has_its_line() {
    for table in TABLES {
        let rows = rows(&table);
        let mut once = BTreeSet::new();
        let twice: Vec<_> = rows.iter().filter(|row| !once.insert(*row)).collect();
        assert!(twice.is_empty(), "{}: {twice:#?}", table.path);
        let there: BTreeSet<String> = rows.iter().map(|row| row.case.clone()).collect();
        assert_eq!(there, table.cases(), "{}", table.path);
    }
}

/// A case that is open, or excluded, is so altogether.
#[test]
fn a_case_without_a_test_has_none() {
    for table in TABLES {
        let rows = rows(&table);
        let none = |row: &&Row| matches!(row.stand, Stand::Open(_) | Stand::Excluded(_));
        let without = rows.iter().filter(none);
        let without: BTreeSet<&str> = without.map(|row| row.case.as_str()).collect();
        let both: Vec<_> = tests(&rows)
            .filter(|(case, _)| without.contains(case))
            .collect();
        assert!(both.is_empty(), "{}: {both:#?}", table.path);
    }
}

/// Every case of the service proxy is judged by the interpreter and sent as real packets on at
/// least one flavour, or its own line says which of them can say nothing of it. That line is as
/// exact: what it says is missing is, and nothing else.
#[test]
fn every_case_of_the_proxy_is_interpreted_and_sent_or_says_why_not() {
    let rows = rows(&Table::named("proxy"));
    let mut executors: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut told: BTreeMap<&str, Vec<Without>> = BTreeMap::new();
    for row in &rows {
        match &row.stand {
            Stand::Test(_) => {
                let of_case = executors.entry(&row.case).or_default();
                of_case.insert(&row.executor);
            }
            Stand::Without(what, _) => told.entry(&row.case).or_default().push(*what),
            Stand::Open(_) | Stand::Excluded(_) => {}
        }
    }
    let mut wrong = Vec::new();
    for (case, executors) in &executors {
        let lacks = without(executors);
        let told = told.remove(case).unwrap_or_default();
        if told != Vec::from_iter(lacks) {
            wrong.push(format!("{case}: {lacks:?}, told {told:?}: {executors:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(told.is_empty(), "no test executes {told:?}");
}

/// What is not among these.
fn without(executors: &BTreeSet<&str>) -> Option<Without> {
    let packets = ["packets-nft", "packets-legacy"];
    let sent = packets.iter().any(|flavour| executors.contains(flavour));
    match (executors.contains("interpreter"), sent) {
        (true, true) => None,
        (false, true) => Some(Without::Interpreter),
        (true, false) => Some(Without::Packets),
        (false, false) => Some(Without::Both),
    }
}

/// What an executor is called says what has run: nothing with packets is in a unit test.
#[test]
fn every_executor_is_in_its_place() {
    for table in TABLES {
        let rows = rows(&table);
        let has_place = |row: &&Row| !row.executor.is_empty();
        for row in rows.iter().filter(has_place) {
            let places: &[&str] = match row.executor.as_str() {
                "unit" => &["proxy/"],
                "interpreter" => &["proxy/core/", "tests/tests/netns_iptables/"],
                "packets-nft" | "packets-legacy" => &["tests/tests/netns_"],
                "daemon" => &["tests/tests/netns_proxy_daemon"],
                "cluster" => &["tests/tests/cluster_"],
                "vm" => &["tests/tests/vm_"],
                other => panic!("{}: where are the tests of {other}?", table.path),
            };
            let Stand::Test(test) = &row.stand else {
                panic!("{}: case {} has no test", table.path, row.case);
            };
            let there = places.iter().any(|place| test.starts_with(place));
            assert!(there, "{}: {test} is not of {}", table.path, row.executor);
        }
    }
}

/// The rows of the table of flows say which cases they stand for; its three executors take
/// all of them, but that our kernels' packets are never of SCTP.
#[test]
fn the_cases_of_flows_are_those_of_their_rows() {
    let table = Table::named("proxy");
    let rows = rows(&table);
    let mut listed: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (case, test) in tests(&rows) {
        if test.contains("/flows::every_flow_ends_as_its_row_says") {
            listed
                .entry(test)
                .or_default()
                .insert(case.parse().unwrap());
        }
    }
    assert_eq!(listed.len(), 5, "{:?}", listed.keys());
    for (test, listed) in listed {
        let sent = |protocol| !test.starts_with("tests/") || protocol != Protocol::Sctp;
        let flows = flows().into_iter().filter(|flow| sent(flow.protocol));
        let there: BTreeSet<u32> = flows
            .flat_map(|flow| flow.cases.iter().copied().map(u32::from))
            .collect();
        let line: Vec<String> = there.iter().map(ToString::to_string).collect();
        assert_eq!(listed, there, "{test} has to have {}", line.join(" "));
    }
}

/// `case_1_to_4_...` or `case_14_19_...`: so the tests of the CNI plugin are called.
#[test]
fn tests_of_the_plugins_cases_carry_their_numbers() {
    let rows = rows(&Table::named("cni"));
    let wrong: Vec<_> = tests(&rows)
        .filter(|(case, test)| !carries(test.rsplit("::").next().unwrap(), case.parse().unwrap()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn carries(name: &str, case: u32) -> bool {
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

/// `u2_u11_...`: so a test is called that was written for reports.
#[test]
fn every_test_that_is_called_after_a_report_is_in_their_table() {
    let table = Table::named("bugs");
    let (known, rows) = (table.cases(), rows(&table));
    let listed: BTreeSet<(String, &str)> = tests(&rows)
        .map(|(case, test)| (case.to_lowercase(), test.rsplit("::").next().unwrap()))
        .collect();
    let mut missing = Vec::new();
    for (path, name) in functions(&["proxy", "tests/tests"]) {
        for word in name.split('_') {
            if !known.contains(&word.to_uppercase()) || word.to_uppercase() == word {
                break;
            }
            if !listed.contains(&(word.to_owned(), name.as_str())) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    let named = listed
        .iter()
        .filter(|(case, name)| name.starts_with(&format!("{case}_")));
    assert!(named.count() > 20);
}

/// Names of all functions, with their files.
fn functions(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut dirs: Vec<PathBuf> = folders.iter().map(|dir| root().join(dir)).collect();
    let mut found = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let names = text.split("fn ").skip(1);
                let names = names.filter_map(|rest| rest.split_once('('));
                found.extend(names.map(|(name, _)| (path.clone(), name.to_owned())));
            }
        }
    }
    found
}

/// No test that is called after a case is left out of the tables.
#[test]
fn every_test_that_is_called_after_a_case_is_in_a_table() {
    let tables = ["docs/cases-cni.tsv", "docs/cases-proxy.tsv"]
        .map(|path| fs::read_to_string(root().join(path)).unwrap())
        .concat();
    let mut missing = Vec::new();
    let mut dirs: Vec<PathBuf> = ["cni-plugin", "tests/tests"]
        .map(|dir| root().join(dir))
        .into();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            if path.ends_with(file!()) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let names = text.split("fn case_").skip(1);
            for rest in names.map(|rest| rest.split('(').next().unwrap_or_default()) {
                let ends = ['\n', '\t'].map(|end| format!("::case_{rest}{end}"));
                if !ends.iter().any(|end| tables.contains(end)) {
                    missing.push(format!("{}: case_{rest}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
