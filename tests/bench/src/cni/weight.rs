//! How big the programs are, and how much memory a call takes.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::plugin::{self, Peer, Peers, Plugin};
use crate::report::Row;
use crate::site::Site;
use crate::stats::Bound;

pub(super) fn measure(peers: Option<&Peers>) -> Result<Vec<Row>> {
    let site = Site::new(1)?;
    let ours = plugin::ours(true, site.dir());
    let mut size = Row::alone("program", "MB", megabytes(&ours.program)?);
    let mut memory = Row::alone("memory of a call", "MB", weigh(&site, &ours)?);
    if let Some(peers) = peers {
        let site = Site::new(1)?;
        let ptp = peers.plugin(Peer::Ptp, site.dir());
        size = size.beside("ptp", megabytes(&ptp.program)?);
        memory = memory.beside("ptp", weigh(&site, &ptp)?);
    }
    Ok(vec![
        size.bound(Bound::AtMost(4.0)),
        memory.bound(Bound::AtMost(8.0)),
    ])
}

/// The most of ADD and DEL, with a port of the node besides.
fn weigh(site: &Site, plugin: &Plugin) -> Result<f64> {
    let pods = site.attachments();
    site.enter(|| {
        let mut most = 0.0_f64;
        for verb in ["ADD", "DEL"] {
            most = most.max(plugin.with_port(20_000).weigh(verb, &pods[0])?);
        }
        Ok(most)
    })
}

fn megabytes(path: &Path) -> Result<f64> {
    let meta = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    let bytes = u32::try_from(meta.len()).context("a program of more than 4 GB")?;
    Ok(f64::from(bytes) / 1e6)
}
