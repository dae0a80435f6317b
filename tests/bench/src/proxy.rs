//! The service proxy with its iptables backend beside kube-proxy, on nodes of their own.
//!
//! What counts is when packets pass and what other programs than ours see in the kernel.

mod contender;
mod latency;
mod meter;
mod place;
mod sync;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ArgAction;
use serde_json::json;

use crate::Output;
use crate::report::{self, Row};
use crate::stats::Bound;
use contender::Contender;
use sync::Outcome;
use world::World;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Few Services, no peers and no pauses, which show that it works and little else
    #[arg(long, action = ArgAction::SetTrue)]
    quick: bool,
    /// How many Services, of ten endpoints each
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    services: Option<u32>,
    /// Pairs of measurements of a packet's way; 20 at the least for a judgement
    #[arg(long)]
    pairs: Option<usize>,
    /// Succeed also when a bound is missed
    #[arg(long, action = ArgAction::SetTrue)]
    report_only: bool,
    /// How to tell the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Where the JSON goes
    #[arg(long, default_value = "target/bench/proxy.json")]
    output_file: PathBuf,
    /// `seaway-proxy`
    #[arg(long)]
    proxy: PathBuf,
    /// Without kube-proxy
    #[arg(long, action = ArgAction::SetTrue)]
    no_peers: bool,
    /// Seconds after which a peer is given up
    #[arg(long, default_value_t = 180)]
    patience: u64,
    /// Only these parts; a full sync is always made
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A start with nothing in the kernel
    Sync,
    /// A start with everything there
    Restart,
    /// One endpoint
    Change,
    /// A minute with nothing to do
    Idle,
    /// The first packet of a connection
    Latency,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Scale {
    world: World,
    changes: u8,
    /// Longer than the pause after a round of anybody, so that a change finds the proxy
    /// at rest.
    rest: Duration,
    /// How long nothing is done.
    idle: Duration,
    restart: bool,
    /// Pairs of blocks of connections, and connections of a block.
    pairs: usize,
    connections: usize,
    patience: Duration,
}

const ENDPOINTS: usize = 10;
/// Changes of a peer, each of which takes seconds.
const PEERS_CHANGES: u8 = 5;
/// Seconds, MB and % of a core that ours may take.
const SYNC: f64 = 10.0;
const CHANGE: f64 = 1.0;
const MEMORY: f64 = 90.0;
const IDLE: f64 = 0.1;

/// Runs the bench; tells whether every bound holds, or nobody asked.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run as root: it makes namespaces and rules of its own");
    }
    let proxy = args.proxy.canonicalize();
    let proxy = proxy.with_context(|| format!("find {}", args.proxy.display()))?;
    let scale = args.scale();
    let ours = Contender::ours(&proxy);
    eprintln!("{} ...", ours.name);
    let (outcome, place) = sync::measure(&ours, &scale)?;
    let mut latencies = Vec::new();
    if args.wants(Part::Latency) {
        eprintln!("packets ...");
        latencies = latency::measure(&ours, &place, &scale)?;
    }
    drop(place);
    let mut peers = Vec::new();
    let changes = scale.changes.min(PEERS_CHANGES);
    let scale_of_peers = Scale { changes, ..scale };
    for peer in args.peers() {
        eprintln!("{} ...", peer.name);
        peers.push(sync::measure(&peer, &scale_of_peers)?.0);
    }
    let mut rows = rows(&outcome, &peers)?;
    rows.append(&mut latencies);
    args.report(&rows, &scale)
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn scale(&self) -> Scale {
        let seconds = Duration::from_secs;
        let (services, changes, idle, pairs, connections) = if self.quick {
            (50, 2, seconds(1), 6, 3)
        } else {
            (10_000, 20, seconds(60), 25, 50)
        };
        // kube-proxy's is a second.
        let rest = Duration::from_millis(if self.quick { 300 } else { 1500 });
        let services = self
            .services
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(services);
        let only = |part, value| if self.wants(part) { value } else { 0 };
        Scale {
            world: World {
                services,
                endpoints: ENDPOINTS,
            },
            changes: only(Part::Change, changes),
            rest,
            idle: idle * u32::from(self.wants(Part::Idle)),
            restart: self.wants(Part::Restart),
            pairs: self.pairs.unwrap_or(pairs),
            connections,
            patience: Duration::from_secs(self.patience),
        }
    }

    fn peers(&self) -> Vec<Contender> {
        if self.quick || self.no_peers {
            return Vec::new();
        }
        let peers = Contender::peers();
        if peers.is_empty() {
            println!("kube-proxy is not built (`cargo xtask setup`): no peers.");
        }
        peers
    }

    fn report(&self, rows: &[Row], scale: &Scale) -> Result<bool> {
        let World {
            services,
            endpoints,
        } = scale.world;
        println!("{services} Services, {endpoints} endpoints each");
        println!("{}", report::table(rows));
        if self.output == Output::Json {
            let mut about = report::about("proxy", self.quick);
            about["services"] = json!(services);
            about["endpoints"] = json!(endpoints);
            about["pairs"] = json!(scale.pairs);
            report::write_json(&self.output_file, &about, rows)?;
            println!("Written to {}.", self.output_file.display());
        }
        let missed: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
        for row in &missed {
            eprintln!("Bound missed: {}", row.what);
        }
        Ok(self.report_only || missed.is_empty())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the pace of looking, which must not depend on what is seen"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// One number of an outcome, as a row with the peers' beside it.
struct Line {
    what: &'static str,
    unit: &'static str,
    bound: Option<f64>,
    value: fn(&Outcome) -> Option<f64>,
}

const LINES: [Line; 12] = [
    line("full sync, lists delivered", "s", Some(SYNC), |o| {
        Some(o.from_lists)
    }),
    line("full sync, from exec", "s", None, |o| Some(o.from_exec)),
    line("full sync, CPU time", "s", None, |o| Some(o.cpu)),
    line("full sync, peak memory", "MB", Some(MEMORY), |o| {
        Some(o.memory.all)
    }),
    line("full sync, largest process", "MB", None, |o| {
        Some(o.memory.largest)
    }),
    line("endpoint change, median", "s", None, |o| {
        crate::stats::middle(&o.changes)
    }),
    line("endpoint change, longest", "s", Some(CHANGE), |o| {
        o.changes.iter().copied().max_by(f64::total_cmp)
    }),
    line("changes, peak memory", "MB", Some(MEMORY), |o| {
        o.changing.filter(|_| !o.changes.is_empty()).map(|m| m.all)
    }),
    line("CPU at idle", "%", Some(IDLE), |o| o.idle),
    line("restart, from exec", "s", None, |o| {
        o.restart.map(|(took, _)| took)
    }),
    line("restart, peak memory", "MB", Some(MEMORY), |o| {
        o.restart.map(|(_, m)| m.all)
    }),
    line("restart, largest process", "MB", None, |o| {
        o.restart.map(|(_, m)| m.largest)
    }),
];

const fn line(
    what: &'static str,
    unit: &'static str,
    bound: Option<f64>,
    value: fn(&Outcome) -> Option<f64>,
) -> Line {
    Line {
        what,
        unit,
        bound,
        value,
    }
}

fn rows(ours: &Outcome, peers: &[Outcome]) -> Result<Vec<Row>> {
    if ours.given_up {
        bail!("the Services are not served in time");
    }
    let mut rows = Vec::new();
    for Line {
        what,
        unit,
        bound,
        value,
    } in LINES
    {
        let Some(number) = value(ours) else {
            continue;
        };
        let row = Row::alone(what, unit, number);
        let mut bounded = bound.map_or(row.clone(), |most| row.clone().bound(Bound::AtMost(most)));
        let mut beside = peers
            .iter()
            .filter_map(|peer| Some((peer.name, value(peer)?)));
        if let Some((name, number)) = beside.next() {
            bounded = bounded.beside(name, number);
        }
        rows.push(bounded);
        rows.extend(beside.map(|(name, number)| row.clone().beside(name, number)));
    }
    Ok(rows)
}
