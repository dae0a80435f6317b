//! The tables of acceptance cases in `docs/`, and of what users of other software have
//! reported: which test stands for which case.
//!
//! Lines of up to three columns, after a heading: cases, a test, and who executes it.
//! A test is `FILE::NAME`, the file relative to the tree and without its extension.
//! A case without a test has `open: ` or `excluded: ` there, and the reason.
//! One that has tests, and of which the interpreter, packets, or either can say nothing, has
//! another line, with `no interpreter: `, `no packets: ` or `neither: ` and the reason.
//! Several cases, or executors, are separated by spaces.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// A table, and the cases that it has to account for.
#[derive(Debug)]
pub struct Table {
    /// What its results are called.
    pub name: &'static str,
    /// Where it is in the tree.
    pub path: &'static str,
    /// What cases are called.
    names: Names,
    /// Words of the third column; none where there is no such column.
    executors: &'static [&'static str],
}

/// What the cases of a table are called.
#[derive(Debug)]
enum Names {
    /// By numbers.
    Numbers(&'static [RangeInclusive<u32>]),
    /// By a letter and a number.
    Letters(&'static [(char, &'static [u32])]),
}

/// All of them.
pub const TABLES: [Table; 3] = [
    Table {
        name: "cni",
        path: "docs/cases-cni.tsv",
        names: Names::Numbers(&[1..=70]),
        executors: &[],
    },
    Table {
        name: "bugs",
        path: "docs/cases-bugs.tsv",
        names: Names::Letters(&[
            ('U', &[1, 2, 4, 5, 7, 8, 10, 11, 13, 14]),
            ('A', &[1, 2, 4, 5, 7, 8]),
            ('R', &[1, 2, 4, 5, 7, 8]),
            ('T', &[1, 2, 4, 5, 7, 8, 10, 11]),
            ('S', &[1, 2, 4, 5]),
            ('H', &[1, 2, 4, 5]),
            ('N', &[1, 2, 4, 5, 7, 8, 10, 11]),
            ('O', &[1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17]),
            ('C', &[1, 2, 4, 5, 7, 8, 10, 11]),
            ('P', &[1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22]),
            ('K', &[1, 2, 8]),
            ('X', &[14]),
        ]),
        executors: &[],
    },
    Table {
        name: "proxy",
        path: "docs/cases-proxy.tsv",
        names: Names::Numbers(&[
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
        ]),
        executors: &[
            "interpreter",
            "unit",
            "packets-nft",
            "packets-legacy",
            "daemon",
            "cluster",
            "vm",
        ],
    },
];

/// What stands for a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stand {
    /// `FILE::NAME`.
    Test(String),
    /// Nothing yet, and why.
    Open(String),
    /// Nothing ever, and why.
    Excluded(String),
    /// Tests of other lines, but none of these executors, and why.
    Without(Without, String),
}

impl Stand {
    /// From a second column.
    fn parse(column: &str) -> Result<Self> {
        if let Some(why) = column.strip_prefix("open: ") {
            Ok(Self::Open(why.to_owned()))
        } else if let Some(why) = column.strip_prefix("excluded: ") {
            Ok(Self::Excluded(why.to_owned()))
        } else if let Some((what, why)) = Without::parse(column) {
            Ok(Self::Without(what, why.to_owned()))
        } else if column.contains("::") {
            Ok(Self::Test(column.to_owned()))
        } else {
            bail!("{column:?} is neither FILE::TEST nor a known word, a colon and a reason")
        }
    }
}

/// What can say nothing of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Without {
    /// The interpreter.
    Interpreter,
    /// Packets through rules.
    Packets,
    /// Neither of them.
    Both,
}

impl Without {
    const ALL: [Self; 3] = [Self::Interpreter, Self::Packets, Self::Both];

    /// As the tables say it, before a colon and the reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interpreter => "no interpreter",
            Self::Packets => "no packets",
            Self::Both => "neither",
        }
    }

    /// From the beginning of a second column; the rest is the reason.
    fn parse(column: &str) -> Option<(Self, &str)> {
        let (word, why) = column.split_once(": ")?;
        let what = Self::ALL.into_iter().find(|what| what.as_str() == word)?;
        Some((what, why))
    }
}

/// One case, one test, one executor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its number, or its letter and number.
    pub case: String,
    /// What stands for it.
    pub stand: Stand,
    /// Who executes it; empty where the table does not tell, or there is no test.
    pub executor: String,
}

impl Table {
    /// The table of this name.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut tables = TABLES.into_iter();
        let found = tables.find(|table| table.name == name);
        found.unwrap_or_else(|| panic!("no table {name:?}"))
    }

    /// The cases that it has to account for.
    #[must_use]
    pub fn cases(&self) -> BTreeSet<String> {
        match self.names {
            Names::Numbers(ranges) => {
                let numbers = ranges.iter().cloned().flatten();
                numbers.map(|number| number.to_string()).collect()
            }
            Names::Letters(letters) => {
                let names = letters.iter().flat_map(|(letter, numbers)| {
                    numbers
                        .iter()
                        .map(move |number| format!("{letter}{number}"))
                });
                names.collect()
            }
        }
    }

    /// Its heading, with or without executors.
    #[must_use]
    pub fn has_executors(&self) -> bool {
        !self.executors.is_empty()
    }

    /// Reads it, every line taken apart into one row for each case and executor.
    ///
    /// # Errors
    /// When it cannot be read, or a line makes no sense.
    pub fn read(&self, tree: &Path) -> Result<Vec<Row>> {
        let text = fs::read_to_string(tree.join(self.path));
        let text = text.with_context(|| format!("read {}", self.path))?;
        self.parse(&text).context(self.path)
    }

    /// Likewise from its text.
    ///
    /// # Errors
    /// When a line makes no sense.
    pub fn parse(&self, text: &str) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let known = self.cases();
        for line in text.lines().skip(1) {
            rows.extend(
                self.line(line, &known)
                    .with_context(|| format!("{line:?}"))?,
            );
        }
        Ok(rows)
    }

    fn line(&self, line: &str, known: &BTreeSet<String>) -> Result<Vec<Row>> {
        let columns: Vec<&str> = line.split('\t').collect();
        let (cases, stand, executors) = match columns[..] {
            [cases, stand] => (cases, stand, ""),
            [cases, stand, executors] => (cases, stand, executors),
            _ => bail!("not two or three columns"),
        };
        let stand = Stand::parse(stand)?;
        if !self.has_executors() && matches!(stand, Stand::Without(..)) {
            bail!("an executor in a table without them");
        }
        let mut executors: Vec<&str> = executors.split_whitespace().collect();
        if let Some(unknown) = executors.iter().find(|word| !self.executors.contains(word)) {
            bail!("{unknown:?} is no executor");
        }
        let wants = self.has_executors() && matches!(stand, Stand::Test(_));
        if wants == executors.is_empty() {
            bail!("a test has executors where the table tells them, and nothing else has");
        }
        if executors.is_empty() {
            executors.push("");
        }
        let mut rows = Vec::new();
        for case in cases.split_whitespace() {
            if !known.contains(case) {
                bail!("{case:?} is no case");
            }
            rows.extend(executors.iter().map(|executor| Row {
                case: case.to_owned(),
                stand: stand.clone(),
                executor: (*executor).to_owned(),
            }));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let table = Table::named("proxy");
        let text = "cases\ttest\texecutors\n1 2\ta/b::c\tpackets-nft packets-legacy\n\
                    9\topen: not yet\n79\texcluded: never\n3\tneither: no packet\n";
        let rows = table.parse(text).unwrap();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.case.as_str(), row.executor.as_str()))
            .collect();
        let want = [
            ("1", "packets-nft"),
            ("1", "packets-legacy"),
            ("2", "packets-nft"),
            ("2", "packets-legacy"),
            ("9", ""),
            ("79", ""),
            ("3", ""),
        ];
        assert_eq!(shown, want);
        assert_eq!(rows[0].stand, Stand::Test("a/b::c".to_owned()));
        assert_eq!(rows[4].stand, Stand::Open("not yet".to_owned()));
        assert_eq!(rows[5].stand, Stand::Excluded("never".to_owned()));
        let without = Stand::Without(Without::Both, "no packet".to_owned());
        assert_eq!(rows[6].stand, without);
    }

    #[test]
    fn lines_that_make_no_sense_are_named() {
        let proxy = Table::named("proxy");
        for line in [
            "1",
            "1\ta::b",
            "1\ta::b\tnobody",
            "x\ta::b\tunit",
            "1\tsomething\tunit",
            "1\topen: not yet\tunit",
            "1\tneither: no packet\tunit",
            "1\tno unit: no packet",
        ] {
            let error = proxy.parse(&format!("heading\n{line}\n")).unwrap_err();
            assert!(format!("{error:#}").contains(&format!("{line:?}")));
        }
        let cni = Table::named("cni");
        assert!(cni.parse("heading\n1\ta::b\tunit\n").is_err());
        assert!(cni.parse("heading\n1\tneither: no packet\n").is_err());
        assert_eq!(cni.parse("heading\n1\ta::b\n").unwrap().len(), 1);
    }

    #[test]
    fn numbers_are_those_of_the_reference() {
        assert_eq!(Table::named("cni").cases().len(), 70);
        assert_eq!(Table::named("proxy").cases().len(), 218);
        assert_eq!(Table::named("bugs").cases().len(), 85);
    }
}
