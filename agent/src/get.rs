//! `seaway-agent get`: what a running agent knows, as `kubectl get` would show it.

mod pods;
mod services;

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::List;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::args::{Output, What};
use crate::local::Listing;

/// Writes `what` of `listing` to `out`.
pub fn show(
    listing: Listing,
    what: What,
    output: Output,
    now: Timestamp,
    out: &mut impl Write,
) -> io::Result<()> {
    match (what, output) {
        (What::Pods, Output::Json) => json(
            &List {
                items: listing.pods,
                ..List::default()
            },
            out,
        ),
        (What::Services, Output::Json) => json(
            &List {
                items: listing.services,
                ..List::default()
            },
            out,
        ),
        (What::Pods, Output::Table) => table(&pods::rows(&listing.pods, now), out),
        (What::Services, Output::Table) => table(&services::rows(&listing, now), out),
    }
}

/// Writes a line for each manifest whose newest version is not in force.
pub fn show_refused(listing: &Listing, out: &mut impl Write) -> io::Result<()> {
    for refusal in &listing.refused {
        let what = if refusal.has_valid_version {
            "its last valid version goes on"
        } else {
            "nothing of it runs"
        };
        writeln!(out, "refused: {refusal} ({what})")?;
    }
    Ok(())
}

fn json(list: &impl serde::Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, list)?;
    writeln!(out)
}

/// A heading and rows of as many cells, in columns three blanks apart.
fn table(rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("   ").trim_end())?;
    }
    Ok(())
}

fn heading(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn names(metadata: &ObjectMeta) -> [String; 2] {
    let namespace = metadata.namespace.clone().unwrap_or_default();
    [namespace, metadata.name.clone().unwrap_or_default()]
}

/// As kubectl's `HumanDuration`, in its coarser steps.
fn age(metadata: &ObjectMeta, now: Timestamp) -> String {
    let Some(created) = &metadata.creation_timestamp else {
        return "<unknown>".to_owned();
    };
    human(now.duration_since(created.0))
}

fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => match seconds % 60 {
            0 => format!("{}m", seconds / 60),
            rest => format!("{}m{rest}s", seconds / 60),
        },
        600..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
