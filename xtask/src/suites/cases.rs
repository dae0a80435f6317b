//! The tables of acceptance cases with what became of their tests: case → test → result.
//!
//! A name with a number in it proves nothing by itself; that the test ran and passed
//! does. So every run writes what it saw, and a whole run fails on a case without.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use seaway_testbed::cases::{Row, Stand, TABLES, Table};

/// What became of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// It failed beside others, and passed by itself.
    PassedAlone,
    Failed,
    /// Ignored, or it said that it cannot run here.
    Skipped,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::PassedAlone => "passed alone",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Every test that ran: by its program's folder in the tree and name, then by its path.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<(String, String), BTreeMap<String, Verdict>>);

impl Verdicts {
    pub(super) fn add(
        &mut self,
        folder: &str,
        target: &str,
        tests: impl IntoIterator<Item = (String, Verdict)>,
    ) {
        let key = (folder.to_owned(), target.to_owned());
        self.0.entry(key).or_default().extend(tests);
    }

    /// `FILE::TEST` as the tables write it, the file without its extension.
    fn of(&self, test: &str) -> Option<Verdict> {
        let (file, name) = test.rsplit_once("::")?;
        let programs = self.0.iter().filter_map(|((folder, target), tests)| {
            let inside = file.strip_prefix(folder)?.strip_prefix('/')?;
            Some((modules(inside, target)?, tests))
        });
        programs
            .flat_map(|(modules, tests)| tests.iter().map(move |test| (modules.clone(), test)))
            .find(|(modules, (path, _))| is_at(path, modules, name))
            .map(|(_, (_, verdict))| *verdict)
    }
}

/// The modules that a file of a package stands for, if it is of that program.
fn modules(file: &str, target: &str) -> Option<String> {
    let path = if let Some(file) = file.strip_prefix("tests/") {
        let rest = file.strip_prefix(target)?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        rest.trim_start_matches('/')
    } else {
        let file = file.strip_prefix("src/")?;
        if matches!(file, "lib" | "main") {
            ""
        } else {
            file
        }
    };
    Some(path.replace('/', "::"))
}

/// Whether a test's path is in these modules, or in a module of tests inside them.
fn is_at(path: &str, modules: &str, name: &str) -> bool {
    let Some(place) = path.strip_suffix(name) else {
        return false;
    };
    let place = place.trim_end_matches("::");
    place == modules
        || place
            .strip_prefix(modules)
            .is_some_and(|rest| rest.trim_start_matches("::") == "tests")
}

/// One table with results.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filled {
    text: String,
    /// Rows by how they stand.
    passed: usize,
    open: usize,
    excluded: usize,
    /// `case: test: result` of what is none of these, and cases without a row.
    wanting: Vec<String>,
}

fn fill(table: &Table, rows: &[Row], verdicts: &Verdicts) -> Filled {
    let heading = if table.has_executors() {
        "case\ttest\texecutor\tresult\n"
    } else {
        "case\ttest\tresult\n"
    };
    let mut filled = Filled {
        text: heading.to_owned(),
        ..Filled::default()
    };
    for row in rows {
        let (test, result) = filled.count(row, verdicts);
        let executor = if table.has_executors() {
            format!("{}\t", row.executor)
        } else {
            String::new()
        };
        let case = &row.case;
        writeln!(filled.text, "{case}\t{test}\t{executor}{result}").expect("text takes text");
    }
    let there: BTreeSet<String> = rows.iter().map(|row| row.case.clone()).collect();
    for case in table.cases().difference(&there) {
        filled.wanting.push(format!("case {case}: nothing"));
    }
    filled
}

impl Filled {
    /// The second column, and the last.
    fn count(&mut self, row: &Row, verdicts: &Verdicts) -> (String, &'static str) {
        match &row.stand {
            Stand::Open(why) => {
                self.open += 1;
                (why.clone(), "open")
            }
            Stand::Excluded(why) => {
                self.excluded += 1;
                (why.clone(), "excluded")
            }
            Stand::Without(what, why) => (why.clone(), what.as_str()),
            Stand::Test(test) => {
                let verdict = verdicts.of(test);
                match verdict {
                    Some(Verdict::Passed | Verdict::PassedAlone) => self.passed += 1,
                    _ => self.wanting.push(format!("case {}: {test}", row.case)),
                }
                (test.clone(), verdict.map_or("not run", Verdict::as_str))
            }
        }
    }
}

/// Where results are written. Those of a part of the suites, which has not run most of the
/// tests, do not take the place of those of a whole run.
fn folder(tree: &Path, whole: bool) -> PathBuf {
    let cases = tree.join("target/cases");
    if whole { cases } else { cases.join("part") }
}

/// Writes `NAME.tsv` of every table into `target/cases`, or of a part of the suites into
/// `target/cases/part`, and says how it stands.
///
/// Gives the number of tests of cases that did not pass; of a part of the suites
/// that number says nothing.
pub(super) fn write(tree: &Path, verdicts: &Verdicts, whole: bool) -> Result<usize> {
    let out = folder(tree, whole);
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let mut wanting = 0;
    for table in TABLES {
        let filled = fill(&table, &table.read(tree)?, verdicts);
        let path = out.join(table.name).with_extension("tsv");
        fs::write(&path, &filled.text).with_context(|| format!("write {}", path.display()))?;
        println!(
            "cases of {}: {} passed, {} open, {} excluded, {} not passed or not run; {}",
            table.name,
            filled.passed,
            filled.open,
            filled.excluded,
            filled.wanting.len(),
            path.strip_prefix(tree).unwrap_or(&path).display(),
        );
        if whole {
            filled
                .wanting
                .iter()
                .for_each(|row| println!("  not passed: {row}"));
            wanting += filled.wanting.len();
        }
    }
    Ok(wanting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts() -> Verdicts {
        let mut verdicts = Verdicts::default();
        let passed = |path: &str| (path.to_owned(), Verdict::Passed);
        verdicts.add(
            "cni-plugin",
            "seaway_cni",
            [
                passed("args::tests::case_5_a"),
                passed("error::tests::case_13_b"),
            ],
        );
        verdicts.add("tests", "netns_cni", [passed("gc::case_8_c")]);
        verdicts.add(
            "tests",
            "netns_cni_upkeep",
            [("case_64_d".to_owned(), Verdict::Skipped)],
        );
        verdicts
    }

    #[test]
    fn tests_are_found_by_file_and_name() {
        let verdicts = verdicts();
        for test in [
            "cni-plugin/src/args/tests::case_5_a",
            "cni-plugin/src/error::case_13_b",
            "tests/tests/netns_cni/gc::case_8_c",
        ] {
            assert_eq!(verdicts.of(test), Some(Verdict::Passed), "{test}");
        }
        let skipped = verdicts.of("tests/tests/netns_cni_upkeep::case_64_d");
        assert_eq!(skipped, Some(Verdict::Skipped));
        for test in [
            "tests/tests/netns_cni::case_64_d",
            "tests/tests/netns_cni/del::case_8_c",
            "cni-plugin/src/error::case_5_a",
            "cni-plugin/src/args/tests::5_a",
        ] {
            assert_eq!(verdicts.of(test), None, "{test}");
        }
    }

    #[test]
    fn what_did_not_pass_is_told() {
        let text = "case\ttest\n8\ttests/tests/netns_cni/gc::case_8_c\n\
                    59\topen: no such runtime\n64\ttests/tests/netns_cni_upkeep::case_64_d\n";
        let table = Table::named("cni");
        let filled = fill(&table, &table.parse(text).unwrap(), &verdicts());
        assert_eq!((filled.passed, filled.open), (1, 1));
        assert_eq!(
            filled.wanting[0],
            "case 64: tests/tests/netns_cni_upkeep::case_64_d"
        );
        // Every case without a row is missed.
        assert_eq!(filled.wanting.len(), 1 + 70 - 3);
        assert_eq!(filled.wanting[1], "case 1: nothing");
        assert!(
            filled.text.ends_with("case_64_d\tskipped\n"),
            "{}",
            filled.text
        );
    }

    /// A folder that stands in for the tree.
    fn tree_with_tables() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for table in TABLES {
            let path = tree.path().join(table.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "heading\n").unwrap();
        }
        tree
    }

    #[test]
    fn a_part_of_the_suites_leaves_the_results_of_a_whole_run_alone() {
        let tree = tree_with_tables();
        let read = |name: &str| fs::read_to_string(tree.path().join("target/cases").join(name));
        write(tree.path(), &verdicts(), false).unwrap();
        assert!(read("proxy.tsv").is_err(), "nothing was run as a whole");
        assert!(read("part/proxy.tsv").unwrap().starts_with("case\t"));
        let wanting = write(tree.path(), &verdicts(), true).unwrap();
        assert!(wanting > 0, "no case has a line");
        fs::write(tree.path().join("target/cases/cni.tsv"), "whole").unwrap();
        write(tree.path(), &verdicts(), false).unwrap();
        assert_eq!(read("cni.tsv").unwrap(), "whole");
    }

    #[test]
    fn executors_have_a_row_each() {
        let text = "cases\ttest\texecutors\n1 79\ttests/tests/netns_cni/gc::case_8_c\tunit vm\n\
                    8\texcluded: no such kernel\n1\tno packets: no such port\n";
        let table = Table::named("proxy");
        let filled = fill(&table, &table.parse(text).unwrap(), &verdicts());
        let test = "tests/tests/netns_cni/gc::case_8_c";
        let want = format!(
            "case\ttest\texecutor\tresult\n1\t{test}\tunit\tpassed\n1\t{test}\tvm\tpassed\n\
             79\t{test}\tunit\tpassed\n79\t{test}\tvm\tpassed\n\
             8\tno such kernel\t\texcluded\n1\tno such port\t\tno packets\n"
        );
        assert_eq!(filled.text, want);
        assert_eq!((filled.passed, filled.excluded), (4, 1));
    }
}
