//! Whether the kernel holds what the last round has wanted, all of it.
//!
//! Read as the sync loop reads it, and compared likewise. Only where that differs is the kernel
//! read once more, in words, to say in what.

use std::collections::HashMap;
use std::fmt;

use seaway_proxy_core::backend::Backend;
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::explain::kernel::{Deviation, Difference};
use serde::{Deserialize, Serialize};

use crate::chain::Chain;

/// So many differences are shown; all are counted.
const SHOWN: usize = 3;

/// What a look at the kernel has brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Look {
    /// Whether the kernel is as it should be; none if that is not known.
    pub(crate) agree: Option<bool>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown: Option<String>,
    /// Objects that are missing, and those that should not be there.
    pub(super) differing: usize,
    /// The first of them.
    pub(super) first: Vec<Difference>,
}

impl Look {
    /// Nobody has looked.
    pub(crate) fn unknown(why: impl Into<String>) -> Self {
        Self {
            unknown: Some(why.into()),
            ..Self::default()
        }
    }

    fn of(agree: bool, mut differences: Vec<Difference>) -> Self {
        let differing = differences.len();
        differences.truncate(SHOWN);
        Self {
            agree: Some(agree),
            unknown: None,
            differing,
            first: differences,
        }
    }
}

/// Reads the kernel and compares it with `desired`.
pub(crate) async fn look<B: Backend>(backend: &mut B, desired: &DesiredState) -> Look {
    let agree = match backend.read_back().await {
        Ok(have) => have == backend.render_beside(&have, desired),
        Err(error) => return Look::unknown(Chain(&error).to_string()),
    };
    if agree {
        return Look::of(true, Vec::new());
    }
    // That it differs is known by now; this is to name what.
    let differences = match backend.read_in_full().await {
        Ok(have) => differences(&have.to_string(), &backend.render(desired).to_string()),
        Err(_) => Vec::new(),
    };
    Look::of(false, differences)
}

/// A line of what a backend shows, and the headings that it stands under.
type Line<'a> = ([&'a str; 2], &'a str);

/// Headings are `# FAMILY`, and below it `*TABLE`.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut place = [""; 2];
    text.lines().filter_map(move |line| {
        if let Some(family) = line.strip_prefix("# ") {
            place = [family, ""];
        } else if let Some(table) = line.strip_prefix('*') {
            place[1] = table;
        } else {
            return Some((place, line));
        }
        None
    })
}

/// What is in one text more often than in the other. There may be very many lines, so none is
/// looked for among all others.
fn differences(have: &str, want: &str) -> Vec<Difference> {
    let mut balance = HashMap::<Line<'_>, i64>::new();
    for line in lines(want) {
        *balance.entry(line).or_default() += 1;
    }
    for line in lines(have) {
        *balance.entry(line).or_default() -= 1;
    }
    balance.retain(|_, wanted| *wanted != 0);
    let mut found: Vec<Difference> = balance.into_iter().map(difference).collect();
    found.sort_unstable();
    if found.is_empty() && have != want {
        found.push(Difference {
            deviation: Deviation::Order,
            place: place(["", ""]),
            want: None,
            have: None,
        });
    }
    found
}

fn difference((line, wanted): (Line<'_>, i64)) -> Difference {
    let (headings, text) = line;
    let (place, text) = (place(headings), text.to_owned());
    if wanted > 0 {
        Difference {
            deviation: Deviation::Missing,
            place,
            want: Some(text),
            have: None,
        }
    } else {
        Difference {
            deviation: Deviation::Extra,
            place,
            want: None,
            have: Some(text),
        }
    }
}

fn place(headings: [&str; 2]) -> String {
    match headings {
        ["", ""] => "the kernel".to_owned(),
        [family, ""] => family.to_owned(),
        ["", table] => table.to_owned(),
        [family, table] => format!("{family} {table}"),
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.agree {
            Some(true) => return writeln!(f, "  kernel: as it should be"),
            Some(false) => {}
            None => {
                let why = self.unknown.as_deref().unwrap_or("nobody has looked");
                return writeln!(f, "  kernel: not known: {why}");
            }
        }
        writeln!(f, "  kernel: not as it should be, being repaired")?;
        for difference in &self.first {
            writeln!(f, "    {difference}")?;
        }
        let more = self.differing.saturating_sub(self.first.len());
        if more > 0 {
            writeln!(f, "    and {more} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
