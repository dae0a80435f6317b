//! `cargo xtask bench`: builds what is measured as it is delivered, and measures it beside
//! its peers. What is measured, and how, is in `tests/bench`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::command::shown;
use crate::release;
use crate::setup::{self, Scope};
use crate::{cache, gotools};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
    /// Do not look for missing packages and programs first
    #[arg(long, global = true)]
    no_setup: bool,
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// The CNI plugin beside ptp and bridge: calls, bursts, leaks, memory, packets
    Cni(Cni),
    /// The service proxy beside kube-proxy: full sync, changes, memory, packets, idle
    Proxy(Proxy),
}

#[derive(clap::Args, Debug)]
struct Cni {
    /// Few repetitions, which show that it works and little else
    #[arg(long)]
    quick: bool,
    /// How many pairs of measurements; 20 at the least for a judgement
    #[arg(long)]
    pairs: Option<usize>,
    /// Succeed also when a bound is missed
    #[arg(long)]
    report_only: bool,
    /// Only these parts: serial, parallel, churn, weight, path-node, path-direct, path-bare,
    /// path-vxlan
    #[arg(long)]
    only: Option<String>,
    /// How to tell the result: table, or json (as well, in target/bench)
    #[arg(long, default_value = "table")]
    output: String,
}

#[derive(clap::Args, Debug)]
struct Proxy {
    /// Few Services, no peers and no pauses, which show that it works and little else
    #[arg(long)]
    quick: bool,
    /// How many Services, of ten endpoints each
    #[arg(long)]
    services: Option<u32>,
    /// Pairs of measurements of a packet's way; 20 at the least for a judgement
    #[arg(long)]
    pairs: Option<usize>,
    /// Succeed also when a bound is missed
    #[arg(long)]
    report_only: bool,
    /// Without kube-proxy, of which iptables mode takes minutes
    #[arg(long)]
    no_peers: bool,
    /// Seconds after which a peer is given up
    #[arg(long)]
    patience: Option<u64>,
    /// Only these parts: sync, restart, change, idle, latency
    #[arg(long)]
    only: Option<String>,
    /// How to tell the result: table, or json (as well, in target/bench)
    #[arg(long, default_value = "table")]
    output: String,
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be built or measured; a missed bound is in the exit code.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !args.no_setup {
        setup::ensure(Scope::Node)?;
        match &args.bench {
            Bench::Proxy(proxy) if proxy.quick || proxy.no_peers => {}
            Bench::Proxy(_) => gotools::ensure()?,
            Bench::Cni(_) => gotools::ensure_cni()?,
        }
    }
    match &args.bench {
        Bench::Cni(args) => cni(args),
        Bench::Proxy(args) => proxy(args),
    }
}

fn cni(args: &Cni) -> Result<ExitCode> {
    let dir = release::cni()?;
    build(&["--release", "--package", "seaway-bench"])?;
    // What it makes is measured, not itself.
    build(&["--package", "seaway-proxy"])?;
    let mut command = bench("cni");
    command
        .env("SEAWAY_BIN_DIR", &dir)
        .args(["--output", &args.output])
        .arg("--proxy")
        .arg(release::target_dir().join("debug/seaway-proxy"));
    for (flag, set) in [("--quick", args.quick), ("--report-only", args.report_only)] {
        command.args(set.then_some(flag));
    }
    let pairs = args.pairs.map(|pairs| pairs.to_string());
    for (flag, value) in [("--only", &args.only), ("--pairs", &pairs)] {
        command.args(value.iter().flat_map(|value| [flag, value]));
    }
    finish(command)
}

fn proxy(args: &Proxy) -> Result<ExitCode> {
    let packages = ["--package", "seaway-bench", "--package", "seaway-proxy"];
    build(&[["--release", "--bins"].as_slice(), &packages].concat())?;
    let mut command = bench("proxy");
    command.args(["--output", &args.output]).arg("--proxy");
    command.arg(release::target_dir().join("release/seaway-proxy"));
    for (flag, set) in [
        ("--quick", args.quick),
        ("--report-only", args.report_only),
        ("--no-peers", args.no_peers),
    ] {
        command.args(set.then_some(flag));
    }
    let pairs = args.pairs.map(|pairs| pairs.to_string());
    let services = args.services.map(|services| services.to_string());
    let patience = args.patience.map(|patience| patience.to_string());
    for (flag, value) in [
        ("--only", &args.only),
        ("--pairs", &pairs),
        ("--services", &services),
        ("--patience", &patience),
    ] {
        command.args(value.iter().flat_map(|value| [flag, value]));
    }
    finish(command)
}

fn build(args: &[&str]) -> Result<()> {
    let mut cargo = seaway_testbed::cargo();
    shown(cargo.arg("build").args(args).current_dir(cache::tree()))
}

/// What else runs on the machine disturbs less.
fn bench(name: &str) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-15"]);
    command.arg(release::target_dir().join("release/seaway-bench"));
    command.arg(name).current_dir(cache::tree());
    command
}

fn finish(mut command: Command) -> Result<ExitCode> {
    let status = command.status().context("start seaway-bench")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
