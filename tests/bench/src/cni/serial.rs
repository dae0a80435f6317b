//! One call after the other: what a pod waits for.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::Effort;
use super::floor::{self, Bare};
use crate::plugin::{self, Peer, Peers, Plugin};
use crate::report::{Compared, Row};
use crate::site::Site;
use crate::stats::{Bound, middle};

/// Somebody who adds and removes pods.
struct Contender {
    name: &'static str,
    site: Site,
    who: Who,
    /// Medians of blocks.
    add: Vec<f64>,
    del: Vec<f64>,
    /// Of all blocks, what each `ADD` took.
    each_add: Vec<f64>,
}

enum Who {
    Plugin(Plugin),
    /// A veth pair that is made and deleted in this process, and nothing else.
    Bare,
}

const OURS: usize = 0;
const DUAL: usize = 1;
const BARE: usize = 2;
const PTP: usize = 3;
const PTP_MASQ: usize = 4;
const BRIDGE: usize = 5;

pub(super) fn measure(effort: Effort, peers: Option<&Peers>) -> Result<Vec<Row>> {
    let mut all = contenders(effort, peers)?;
    for pair in 0..effort.pairs {
        // Everybody is first in turn: what one leaves to the kernel to do hits the next.
        for turn in 0..all.len() {
            let place = (pair + turn) % all.len();
            all[place].block()?;
        }
    }
    rows(&all)
}

fn contenders(effort: Effort, peers: Option<&Peers>) -> Result<Vec<Contender>> {
    let new = |name, who: &dyn Fn(&Site) -> Who| -> Result<Contender> {
        let site = Site::new(effort.calls)?;
        Ok(Contender {
            name,
            who: who(&site),
            site,
            add: Vec::new(),
            del: Vec::new(),
            each_add: Vec::new(),
        })
    };
    let mut all = vec![
        new("ours", &|site| Who::Plugin(plugin::ours(false, site.dir())))?,
        new("ours, single stack", &|site| {
            Who::Plugin(plugin::ours(true, site.dir()))
        })?,
        new("bare veth", &|_| Who::Bare)?,
    ];
    let others = [
        ("ptp", Peer::Ptp),
        ("ptp, ipMasq", Peer::PtpMasq),
        ("bridge", Peer::Bridge),
    ];
    for (name, peer) in peers
        .into_iter()
        .flat_map(|peers| others.map(|(n, p)| (n, (peers, p))))
    {
        let (peers, kind) = peer;
        all.push(new(name, &|site| {
            Who::Plugin(peers.plugin(kind, site.dir()))
        })?);
    }
    Ok(all)
}

impl Contender {
    /// Adds a pod in each namespace, and removes them again, the median of which counts.
    fn block(&mut self) -> Result<()> {
        let (pods, who) = (self.site.attachments(), &self.who);
        let spacer = &plugin::ours(false, self.site.dir());
        let (add, del) = self.site.enter(|| match who {
            Who::Plugin(plugin) => {
                let add = pods.iter().map(|pod| plugin.call("ADD", pod));
                let add = add.collect::<Result<Vec<_>>>()?;
                let del = pods.iter().map(|pod| plugin.call("DEL", pod));
                Ok((add, del.collect::<Result<Vec<_>>>()?))
            }
            Who::Bare => bare(&pods, spacer),
        })?;
        self.add.extend(middle(&add));
        self.del.extend(middle(&del));
        self.each_add.extend(add);
        Ok(())
    }
}

/// A deletion waits for the end of RCU grace periods. One that follows another at once waits
/// from the beginning of one, less than any that begins at an odd time; so a process is
/// started and waited for before each, as a plugin's is.
fn bare(pods: &[plugin::Pod], spacer: &Plugin) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut bare = Bare::open()?;
    let mut add = Vec::new();
    let mut made = Vec::new();
    for pod in pods {
        let started = Instant::now();
        made.push(bare.attach(&pod.netns, floor::next())?);
        add.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let mut del = Vec::new();
    for (pod, index) in pods.iter().zip(made) {
        spacer.call("VERSION", pod)?;
        let started = Instant::now();
        bare.delete(index)?;
        del.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok((add, del))
}

fn rows(all: &[Contender]) -> Result<Vec<Row>> {
    use Compared::{Difference, Ratio};
    let row = |what, ours: &[f64], place: usize, peer: &[f64], compared| {
        Row::pairs(what, "ms", ours, (all[place].name, peer), compared)
    };
    let (ours, dual, bare) = (&all[OURS], &all[DUAL], &all[BARE]);
    // A ratio would hold also where everybody has become slow.
    let median = middle(&ours.each_add).context("nothing was added")?;
    let median = Row::alone("ADD, median of all", "ms", median);
    let mut rows = vec![median.bound(Bound::AtMost(3.0))];
    if let (Some(ptp), Some(bridge)) = (all.get(PTP), all.get(BRIDGE)) {
        rows.push(row("ADD", &ours.add, PTP, &ptp.add, Ratio)?.bound(Bound::AtMost(0.35)));
        rows.push(row("ADD", &ours.add, BRIDGE, &bridge.add, Ratio)?);
    }
    let twice = Row::pairs(
        "ADD, dual stack",
        "ms",
        &dual.add,
        (dual.name, &ours.add),
        Ratio,
    )?;
    rows.push(twice.bound(Bound::AtMost(1.3)));
    rows.push(row("ADD", &ours.add, BARE, &bare.add, Difference)?);
    rows.push(row("DEL", &ours.del, BARE, &bare.del, Difference)?.bound(Bound::AtMost(2.0)));
    rows.push(row(
        "DEL, dual stack",
        &dual.del,
        BARE,
        &bare.del,
        Difference,
    )?);
    if let (Some(ptp), Some(masq)) = (all.get(PTP), all.get(PTP_MASQ)) {
        rows.push(row("DEL", &ours.del, PTP_MASQ, &masq.del, Ratio)?.bound(Bound::AtMost(0.5)));
        rows.push(row("DEL", &ours.del, PTP, &ptp.del, Ratio)?);
    }
    Ok(rows)
}
