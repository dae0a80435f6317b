//! The CNI plugin beside the reference plugins `ptp` and `bridge` with `host-local`.

mod churn;
mod floor;
mod nodes;
mod parallel;
mod path;
mod serial;
mod weight;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ArgAction;
use serde_json::json;

use crate::Output;
use crate::plugin::Peers;
use crate::report::{self, Row};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Few repetitions, which show that it works and little else
    #[arg(long, action = ArgAction::SetTrue)]
    quick: bool,
    /// How many pairs of measurements; 20 at the least for a judgement
    #[arg(long)]
    pairs: Option<usize>,
    /// Succeed also when a bound is missed
    #[arg(long, action = ArgAction::SetTrue)]
    report_only: bool,
    /// How to tell the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Where the JSON goes
    #[arg(long, default_value = "target/bench/cni.json")]
    output_file: PathBuf,
    /// `seaway-proxy`, for packets between nodes
    #[arg(long)]
    proxy: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// One call after the other
    Serial,
    /// Sixteen calls at once
    Parallel,
    /// What is left of many pods
    Churn,
    /// Size and memory
    Weight,
    /// Packets between pods of a node
    PathNode,
    /// Packets to another node's pods, by a plain route
    PathDirect,
    /// What masquerade costs on that way
    PathBare,
    /// Packets to another node's pods, over VXLAN
    PathVxlan,
}

const PARTS: [Part; 8] = [
    Part::Serial,
    Part::Parallel,
    Part::Churn,
    Part::Weight,
    Part::PathNode,
    Part::PathDirect,
    Part::PathBare,
    Part::PathVxlan,
];

/// How much is repeated.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Pairs of measurements; an interval wants six, a judgement twenty.
    pairs: usize,
    /// Calls one after the other in a measurement, whose median counts.
    calls: usize,
    /// Pods added at once in a measurement.
    burst: usize,
    /// Pods that come and go.
    churn: usize,
    /// Connections between the same two pods, of which the middle counts: what one is like
    /// depends on more than what is compared, such as where its memory lies, and stays so while
    /// it lasts.
    connections: usize,
    /// How long a connection is measured, one way and both.
    packets: Duration,
}

const FULL: Effort = Effort {
    pairs: 30,
    // Together the 200 calls, and some more, whose median the reference asks for.
    calls: 7,
    burst: 64,
    churn: 250,
    // One differs from the next by up to three times, and this makes it a tenth.
    connections: 25,
    packets: Duration::from_millis(50),
};

const QUICK: Effort = Effort {
    pairs: 6,
    calls: 1,
    burst: 16,
    churn: 16,
    connections: 3,
    packets: Duration::from_millis(20),
};

/// Runs the bench; tells whether every bound holds, or nobody asked.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run as root: it makes namespaces and links of its own");
    }
    let mut effort = if args.quick { QUICK } else { FULL };
    effort.pairs = args.pairs.unwrap_or(effort.pairs);
    let peers = Peers::find();
    if peers.is_none() {
        println!("The reference plugins are not built (`cargo xtask setup`): no peers.");
    }
    // It is started in mounts of its own, which have another current folder.
    let proxy = args.proxy.as_deref().map(|path| {
        path.canonicalize()
            .with_context(|| format!("find {}", path.display()))
    });
    let proxy = proxy.transpose()?;
    let mut rows = Vec::new();
    for part in PARTS {
        if args.only.is_empty() || args.only.contains(&part) {
            eprintln!("{part:?} ...");
            rows.extend(part.measure(effort, peers.as_ref(), proxy.as_deref())?);
        }
    }
    println!("{}", report::table(&rows));
    if args.output == Output::Json {
        let mut about = report::about("cni", args.quick);
        about["pairs"] = json!(effort.pairs);
        report::write_json(&args.output_file, &about, &rows)?;
        println!("Written to {}.", args.output_file.display());
    }
    let missed: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
    for row in &missed {
        eprintln!("Bound missed: {}", row.what);
    }
    Ok(args.report_only || missed.is_empty())
}

impl Part {
    fn measure(
        self,
        effort: Effort,
        peers: Option<&Peers>,
        proxy: Option<&Path>,
    ) -> Result<Vec<Row>> {
        match self {
            Self::Serial => serial::measure(effort, peers),
            Self::Parallel => parallel::measure(effort, peers),
            Self::Churn => churn::measure(effort),
            Self::Weight => weight::measure(peers),
            Self::PathNode => path::on_a_node(effort, peers),
            Self::PathDirect => path::to_a_node(effort, proxy, path::direct),
            Self::PathBare => path::to_a_node(effort, proxy, path::bare),
            Self::PathVxlan => path::to_a_node(effort, proxy, path::vxlan),
        }
    }
}
