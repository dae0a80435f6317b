//! How big the programs are, and how much memory a call takes.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::plugin::{self, Peer, Peers, Plugin};
use crate::report::Row;
use crate::site::Site;
use crate::stats::Bound;

/// As many pods as a big node has.
const RECORDS: u8 = 250;

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
        Row::alone("memory of CHECK, GC", "MB", weigh_beside_records()?).bound(Bound::AtMost(8.0)),
    ])
}

/// The most of CHECK, and of a GC that removes all records.
fn weigh_beside_records() -> Result<f64> {
    let site = Site::new(1)?;
    let mut ours = plugin::ours(false, site.dir());
    let (dir, pods) = (site.dir().join("cni/seaway"), site.attachments());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let dir = dir.join(boot.trim());
    site.enter(|| {
        let address = ours.add(&pods[0])?;
        let own = dir.join(format!("{address}={}:eth0", pods[0].id));
        for n in 0..RECORDS {
            let other = dir.join(format!("10.83.255.{n}=other{n}:eth0"));
            std::fs::copy(&own, &other).with_context(|| format!("copy {}", own.display()))?;
        }
        ours.conf["cniVersion"] = json!("1.1.0");
        ours.conf["prevResult"] = json!({"ips": [{"address": format!("{address}/32")}]});
        let check = ours.weigh("CHECK", &pods[0])?;
        ours.conf["cni.dev/valid-attachments"] = json!([]);
        Ok(check.max(ours.weigh("GC", &pods[0])?))
    })
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
