//! What was found, for people and for programs.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::stats::{Bound, Estimate, middle};

/// How ours and the peer's are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Ours divided by the peer's.
    Ratio,
    /// Ours less the peer's.
    Difference,
    /// Ours alone.
    Alone,
}

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    ours: f64,
    peer: Option<(&'static str, f64)>,
    compared: Compared,
    estimate: Estimate,
    bound: Option<Bound>,
    samples: usize,
}

impl Row {
    /// Ours beside a peer's, one value of each per pair.
    pub(crate) fn pairs(
        what: &'static str,
        unit: &'static str,
        ours: &[f64],
        (name, peer): (&'static str, &[f64]),
        compared: Compared,
    ) -> Result<Self> {
        let of = |a: f64, b: f64| match compared {
            Compared::Ratio => a / b,
            Compared::Difference => a - b,
            Compared::Alone => a,
        };
        let nothing = || format!("{what}: nothing was measured");
        Ok(Self {
            what,
            unit,
            ours: middle(ours).with_context(nothing)?,
            peer: Some((name, middle(peer).with_context(nothing)?)),
            compared,
            estimate: Estimate::of_pairs(ours, peer, of).with_context(nothing)?,
            bound: None,
            samples: ours.len(),
        })
    }

    /// A number that needs no peer.
    pub(crate) fn alone(what: &'static str, unit: &'static str, value: f64) -> Self {
        Self {
            what,
            unit,
            ours: value,
            peer: None,
            compared: Compared::Alone,
            estimate: Estimate {
                median: value,
                low: value,
                high: value,
            },
            bound: None,
            samples: 1,
        }
    }

    /// The same, with a peer's number to look at.
    #[must_use]
    pub(crate) fn beside(self, name: &'static str, value: f64) -> Self {
        let peer = Some((name, value));
        Self { peer, ..self }
    }

    #[must_use]
    pub(crate) fn bound(self, bound: Bound) -> Self {
        let bound = Some(bound);
        Self { bound, ..self }
    }

    /// For information.
    #[must_use]
    pub(crate) fn unbound(self) -> Self {
        Self {
            bound: None,
            ..self
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.bound.is_none_or(|bound| bound.holds(&self.estimate))
    }

    fn verdict(&self) -> &'static str {
        match (self.bound, self.holds()) {
            (None, _) => "",
            (Some(_), true) => "ok",
            (Some(_), false) => "MISSED",
        }
    }

    fn cells(&self) -> [String; 6] {
        let number = |value: f64| format!("{} {}", short(value), self.unit);
        let Estimate { median, low, high } = self.estimate;
        let (sign, unit) = match self.compared {
            Compared::Ratio => (" ×", String::new()),
            Compared::Difference | Compared::Alone => ("", format!(" {}", self.unit)),
        };
        let estimate = if self.compared == Compared::Alone {
            String::new()
        } else {
            let interval = format!("({} – {})", short(low), short(high));
            format!("{}{sign}{unit} {interval}", short(median))
        };
        let bound = self.bound.map(|bound| format!("{bound}{sign}{unit}"));
        [
            self.what.to_owned(),
            number(self.ours),
            self.peer
                .map(|(name, value)| format!("{} {name}", number(value)))
                .unwrap_or_default(),
            estimate,
            bound.unwrap_or_default(),
            self.verdict().to_owned(),
        ]
    }

    fn to_json(&self) -> Value {
        let bound = self.bound.map(|bound| match bound {
            Bound::AtMost(most) => json!({"atMost": most}),
            Bound::AtLeast(least) => json!({"atLeast": least}),
        });
        json!({
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer.map(|(name, value)| json!({"name": name, "value": value})),
            "compared": match self.compared {
                Compared::Ratio => "ratio",
                Compared::Difference => "difference",
                Compared::Alone => "alone",
            },
            "median": self.estimate.median,
            "interval": [self.estimate.low, self.estimate.high],
            "samples": self.samples,
            "bound": bound,
            "holds": self.holds(),
        })
    }
}

/// Three digits that count.
fn short(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

/// All comparisons as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![["", "ours", "peer", "compared (95 %)", "bound", ""].map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(text, "{}", line.join("  ").trim_end()).expect("text takes any text");
    }
    text
}

/// Where a bench was run, and how.
pub(crate) fn about(bench: &str, quick: bool) -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    json!({
        "bench": bench,
        "quick": quick,
        "kernel": kernel.unwrap_or_default().trim(),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    })
}

/// Writes `target/bench/NAME.json`; `about` says where and how it was measured.
pub(crate) fn write_json(path: &Path, about: &Value, rows: &[Row]) -> Result<()> {
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let all = json!({"about": about, "rows": rows});
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    std::fs::write(path, format!("{all:#}\n")).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_all_that_was_found() {
        let ours = [2.0, 2.0, 3.0, 2.0, 2.0, 2.0];
        let peer = ("ptp", &[8.0, 8.0, 8.0, 10.0, 8.0, 8.0][..]);
        let row = Row::pairs("ADD", "ms", &ours, peer, Compared::Ratio).unwrap();
        let row = row.bound(Bound::AtMost(0.35));
        let table = table(std::slice::from_ref(&row));
        let line = table.lines().nth(1).unwrap();
        let words: Vec<&str> = line
            .split("  ")
            .filter(|w| !w.is_empty())
            .map(str::trim)
            .collect();
        assert_eq!(
            words,
            [
                "ADD",
                "2.00 ms",
                "8.00 ms ptp",
                "0.250 × (0.200 – 0.375)",
                "≤ 0.35 ×",
                "MISSED"
            ]
        );
        let json = row.to_json();
        assert_eq!(json["interval"], json!([0.2, 0.375]));
        assert_eq!(json["bound"], json!({"atMost": 0.35}));
        assert_eq!(json["holds"], json!(false));
    }

    #[test]
    fn a_difference_has_a_unit_and_a_number_alone_no_interval() {
        let row = Row::pairs(
            "DEL",
            "ms",
            &[21.0],
            ("bare", &[20.0]),
            Compared::Difference,
        );
        let row = row.unwrap().bound(Bound::AtMost(2.0));
        assert!(row.holds());
        assert_eq!(row.cells()[3], "1.00 ms (1.00 – 1.00)");
        assert_eq!(row.cells()[4], "≤ 2 ms");
        let size = Row::alone("binary", "MB", 1.9).bound(Bound::AtMost(4.0));
        assert_eq!(size.cells()[3], "");
        assert_eq!(size.verdict(), "ok");
    }
}
