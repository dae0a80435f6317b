//! What a kernel holds for one address, and what it should hold.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Target;

/// What is looked for in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Where clients send to.
    pub target: Target,
    /// Where the packets go on to, by the desired state.
    pub endpoints: Vec<SocketAddr>,
}

/// What a backend found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// Kernel objects that packets for the address meet, in their order.
    pub holds: Vec<String>,
    /// Where the kernel is not as it should be; empty if both agree.
    pub differences: Vec<Difference>,
}

/// How the kernel differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Deviation {
    /// Not there.
    Missing,
    /// There, and should not be.
    Extra,
    /// Another one is in its place.
    Different,
    /// All are there, in another order.
    Order,
}

/// One kernel object that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// How.
    pub deviation: Deviation,
    /// Where, such as a table and a chain.
    pub place: String,
    /// What should be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub want: Option<String>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub have: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.deviation {
            Deviation::Missing => "missing",
            Deviation::Extra => "extra",
            Deviation::Different => "different",
            Deviation::Order => "in another order",
        };
        write!(f, "{word} in {}", self.place)?;
        match (&self.want, &self.have) {
            (Some(want), Some(have)) => write!(f, ": wanted {want}, found {have}"),
            (Some(one), None) | (None, Some(one)) => write!(f, ": {one}"),
            (None, None) => Ok(()),
        }
    }
}

/// Compares two sequences of one place. What stands alone at the same position on both
/// sides is one different object, not a missing and an extra one.
pub fn compare(place: &str, want: &[&str], have: &[&str]) -> Vec<Difference> {
    let missing = without(want, have);
    let extra = without(have, want);
    let difference = |deviation, want: Option<&str>, have: Option<&str>| Difference {
        deviation,
        place: place.to_owned(),
        want: want.map(str::to_owned),
        have: have.map(str::to_owned),
    };
    if missing.is_empty() && extra.is_empty() {
        let order = || difference(Deviation::Order, None, None);
        return (want != have).then(order).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut extra = extra;
    for (at, line) in missing {
        let twin = extra.iter().position(|(other, _)| *other == at);
        found.push(match twin {
            Some(twin) => {
                let (_, have) = extra.remove(twin);
                difference(Deviation::Different, Some(line), Some(have))
            }
            None => difference(Deviation::Missing, Some(line), None),
        });
    }
    let extra = extra.into_iter();
    found.extend(extra.map(|(_, line)| difference(Deviation::Extra, None, Some(line))));
    found
}

/// What of `these` is not in `others`, as often as it is more often here; with positions.
fn without<'a>(these: &[&'a str], others: &[&str]) -> Vec<(usize, &'a str)> {
    let mut counts = std::collections::HashMap::<&str, usize>::new();
    for line in others {
        *counts.entry(line).or_default() += 1;
    }
    let mut absent = Vec::new();
    for (at, line) in these.iter().enumerate() {
        match counts.get_mut(line) {
            Some(count) if *count > 0 => *count -= 1,
            _ => absent.push((at, *line)),
        }
    }
    absent
}

/// For a backend whose text form names the address in every line that concerns it.
/// Lines that begin with `link ` concern every address.
pub fn by_lines(have: &str, want: &str, subject: &Subject) -> Inspection {
    let name = subject.target.to_string();
    let concerns =
        |line: &&str| line.starts_with("link ") || line.split(' ').any(|word| word == name);
    let have: Vec<&str> = have.lines().filter(concerns).collect();
    let want: Vec<&str> = want.lines().filter(concerns).collect();
    Inspection {
        holds: have.iter().map(|line| (*line).to_owned()).collect(),
        differences: compare("the maps", &want, &have),
    }
}
