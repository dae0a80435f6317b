//! Where a sync can be killed so that it makes a difference, and which of that is tried.
//!
//! What is left of a sync changes with what its programs tell the kernel, with what the daemon
//! tells its programs, and with what it does itself: files, and flows that it forgets. A kill
//! before each of these calls is carried out meets every state that there is. Which they are,
//! and in which order, is found by tracing a whole sync.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// So many writes are tried one after the other where there is time for it,
const EACH: usize = 50;
/// and beyond that every so many.
const BEYOND: usize = 10;

/// A kill; shown as `program.sh` reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Which the daemon has started last.
    pub(super) program: String,
    pub(super) kill: Kill,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    /// Of program and daemon, before the program's n-th call of this name.
    Both { call: String, count: usize },
    /// Of the daemon when it has said that much; the program goes on with what it has.
    Mute { after: usize },
    /// Of the daemon, before the n-th call of this name of one of its threads; where there is
    /// a path, of the calls for that.
    Daemon {
        call: String,
        count: usize,
        path: Option<PathBuf>,
    },
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        match &self.kill {
            Kill::Both { call, count } => write!(f, " both {call} {count}"),
            Kill::Mute { after } => write!(f, " mute - {after}"),
            Kill::Daemon { call, count, path } => {
                write!(f, " daemon {call} {count}")?;
                match path {
                    Some(path) => write!(f, " {}", path.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Point {
    /// What it has in common with others of which the first, one between and the last tell most.
    fn kind(&self) -> (String, String) {
        let what = match &self.kill {
            Kill::Both { call, .. } => call.clone(),
            Kill::Mute { .. } => "mute".to_owned(),
            Kill::Daemon { call, .. } => format!("daemon {call}"),
        };
        (self.program.clone(), what)
    }

    /// Whether it is a call of this sync. A larger one says what it has to say in several, so
    /// there are others as well.
    fn is_write(&self) -> bool {
        !matches!(self.kill, Kill::Mute { after } if after > 0)
    }

    /// Whether it is a call of the daemon's own, for a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.kill, Kill::Daemon { path: Some(_), .. })
    }

    /// Whether it is one for a flow that the daemon forgets.
    pub(super) fn is_flow(&self) -> bool {
        matches!(self.kill, Kill::Daemon { path: None, .. })
    }
}

/// How many of them are calls of this sync.
pub(super) fn writes(points: &[Point]) -> usize {
    points.iter().filter(|point| point.is_write()).count()
}

/// The first of each kind, one between, and the last; of those that are a program's every
/// fourth from `first` on.
pub(super) fn few(points: &[Point], first: usize) -> Vec<Point> {
    let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (place, point) in points.iter().enumerate() {
        kinds.entry(point.kind()).or_default().push(place);
    }
    let of_kind = |all: &Vec<usize>| [all[0], all[all.len() / 2], all[all.len() - 1]];
    let chosen: BTreeSet<usize> = kinds.values().flat_map(of_kind).collect();
    let mut seen = 0;
    let wanted = |point: &&Point| {
        let is_programs = !point.is_file() && !point.is_flow();
        seen += usize::from(is_programs);
        !is_programs || seen % 4 == (first + 1) % 4
    };
    let chosen = chosen.into_iter().map(|place| &points[place]);
    chosen.filter(wanted).cloned().collect()
}

/// After each k-th write for k up to 50, beyond that after some, and before the last.
pub(super) fn many(points: &[Point]) -> Vec<Point> {
    let (mut k, mut chosen) = (0_usize, Vec::new());
    for (place, point) in points.iter().enumerate() {
        let is_last = place + 1 == points.len();
        if !point.is_write() || k <= EACH || k.is_multiple_of(BEYOND) || is_last {
            chosen.push(point.clone());
        }
        k += usize::from(point.is_write());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(program: &str, kill: Kill) -> Point {
        Point {
            program: program.to_owned(),
            kill,
        }
    }

    fn sends(program: &str, count: usize) -> Vec<Point> {
        let call = |count| Kill::Both {
            call: "sendto".to_owned(),
            count,
        };
        (1..=count).map(|n| point(program, call(n))).collect()
    }

    #[test]
    fn the_first_fifty_are_tried_one_by_one_and_of_the_rest_some() {
        let mut points = sends("a", 75);
        points.insert(70, point("a", Kill::Mute { after: 9 }));
        assert_eq!(writes(&points), 75);
        let chosen: Vec<String> = many(&points).iter().map(Point::to_string).collect();
        let calls = (1..=51).chain([61]);
        let mut want: Vec<String> = calls.map(|n| format!("a both sendto {n}")).collect();
        want.extend(["a mute - 9", "a both sendto 71", "a both sendto 75"].map(str::to_owned));
        assert_eq!(chosen, want);
    }

    #[test]
    fn of_each_kind_there_are_the_first_one_between_and_the_last_in_turns() {
        let daemons = point(
            "b",
            Kill::Daemon {
                call: "sendto".to_owned(),
                count: 7,
                path: None,
            },
        );
        let points = [sends("a", 9), vec![daemons], sends("b", 1)].concat();
        let chosen = |first| {
            let chosen = few(&points, first);
            chosen.iter().map(Point::to_string).collect::<Vec<_>>()
        };
        let (between, daemons) = ("a both sendto 5", "b daemon sendto 7");
        assert_eq!(chosen(0), ["a both sendto 1", daemons]);
        assert_eq!(chosen(1), [between, daemons]);
        assert_eq!(chosen(2), ["a both sendto 9", daemons]);
        assert_eq!(chosen(3), [daemons, "b both sendto 1"]);
    }
}
