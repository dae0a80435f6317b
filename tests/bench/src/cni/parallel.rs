//! Sixteen calls at once, as when a node starts its pods.

use std::sync::Mutex;

use anyhow::Result;
use seaway_netlink::IfIndex;

use super::Effort;
use super::floor::{self, Bare};
use crate::plugin::{self, Peer, Peers, Plugin, Pod};
use crate::report::{Compared, Row};
use crate::site::Site;
use crate::stats::Bound;

const THREADS: usize = 16;

pub(super) fn measure(effort: Effort, peers: Option<&Peers>) -> Result<Vec<Row>> {
    let mut ours = Burst::new(effort, |site| plugin::ours(false, site.dir()))?;
    let mut dual = Burst::new(effort, |site| plugin::ours(true, site.dir()))?;
    let ceiling = Site::new(effort.burst)?;
    let mut most = Vec::new();
    let mut others = Vec::new();
    if let Some(peers) = peers {
        for peer in [Peer::Ptp, Peer::Bridge] {
            others.push(Burst::new(effort, |site| peers.plugin(peer, site.dir()))?);
        }
    }
    for pair in 0..effort.pairs {
        let ours_first = pair % 2 == 0;
        if ours_first {
            ours.go()?;
        }
        most.push(in_process(&ceiling)?);
        for other in &mut others {
            other.go()?;
        }
        dual.go()?;
        if !ours_first {
            ours.go()?;
        }
    }
    let row = |what, rates: &[f64], name, peer: &[f64]| {
        Row::pairs(what, "/s", rates, (name, peer), Compared::Ratio)
    };
    let mut rows = Vec::new();
    if let [ptp, bridge] = others.as_slice() {
        let pairs = ptp.rates.iter().zip(&bridge.rates);
        let best: Vec<f64> = pairs.map(|(a, b)| a.max(*b)).collect();
        let row = row("16 ADDs at once", &ours.rates, "best of ptp, bridge", &best)?;
        rows.push(row.bound(Bound::AtLeast(4.0)));
    }
    let ceiling = row(
        "16 ADDs at once",
        &ours.rates,
        "netlink in one process",
        &most,
    )?;
    rows.push(ceiling.bound(Bound::AtLeast(0.5)));
    rows.push(row(
        "16 ADDs at once, dual stack",
        &dual.rates,
        "ours, single stack",
        &ours.rates,
    )?);
    Ok(rows)
}

/// A plugin, and how many calls it served per second.
struct Burst {
    site: Site,
    plugin: Plugin,
    rates: Vec<f64>,
}

impl Burst {
    fn new(effort: Effort, plugin: impl FnOnce(&Site) -> Plugin) -> Result<Self> {
        let site = Site::new(effort.burst)?;
        Ok(Self {
            plugin: plugin(&site),
            site,
            rates: Vec::new(),
        })
    }

    fn go(&mut self) -> Result<()> {
        let (pods, plugin) = (self.site.attachments(), &self.plugin);
        let call = |verb| move |pod: &Pod| plugin.call(verb, pod).map(drop);
        let rate = self.site.at_once(THREADS, &pods, call("ADD"))?;
        self.site.at_once(THREADS, &pods, call("DEL"))?;
        self.rates.push(rate);
        Ok(())
    }
}

/// The same netlink work by as many threads of this process.
fn in_process(site: &Site) -> Result<f64> {
    let made: Mutex<Vec<IfIndex>> = Mutex::default();
    let rate = site.at_once(THREADS, &site.attachments(), |pod| {
        let index = Bare::open()?.attach(&pod.netns, floor::next())?;
        made.lock().expect("no holder panics").push(index);
        Ok(())
    })?;
    let made = made.into_inner().expect("no holder panics");
    site.enter(|| Bare::open()?.delete_all(&made))?;
    Ok(rate)
}
