//! The one door: everything that a person or CI does with this tree.
//!
//! `setup` makes the machine ready, `build` compiles, `image` packs, `demo` shows,
//! `test` tests, `conformance` runs upstream's tests, `bench` measures, `up` and `down` give a
//! cluster to play with, `lint` judges.
//! It deliberately knows nothing about packets or pods: the fixtures are in
//! `seaway-testbed`, and what a build can express is in build scripts.

#![allow(
    clippy::print_stdout,
    reason = "a command-line tool talks on its standard output"
)]

mod bench;
mod cache;
mod command;
mod conformance;
mod demo;
mod fuzz;
mod gotools;
mod image;
mod lint;
mod playground;
mod release;
mod setup;
mod suites;
mod tally;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The one door to Seaway's tree")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing on this machine (apt, bpf-linker, Go parts)
    Setup(setup::Args),
    /// Build Seaway's programs
    Build(suites::BuildArgs),
    /// Build the container image that `deploy/` runs, without Docker
    Image(image::Args),
    /// Show a Service that answers from pods, on a node that leaves nothing behind
    Demo(demo::Args),
    /// Run the tests, all parts unless some are named
    Test(suites::Args),
    /// Measure beside the peers, as ratios
    Bench(bench::Args),
    /// Run upstream's end-to-end tests on a cluster of ours, or of stock parts
    Conformance(conformance::Args),
    /// Start a two-node cluster (or a standalone node) and leave it running
    Up(playground::UpArgs),
    /// Stop what `up` has started
    Down,
    /// Hold what `up` starts, in the background
    #[command(hide = true)]
    Hold(playground::UpArgs),
    /// Feed every reader of foreign bytes with mutated input, on both sides of each branch
    Fuzz(fuzz::Args),
    /// Format, clippy, documentation, dependencies
    Lint,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Setup(args) => setup::run(&args)?,
        Verb::Build(args) => suites::build(&args)?,
        Verb::Image(args) => image::run(&args)?,
        Verb::Demo(args) => demo::run(&args)?,
        Verb::Test(args) => return suites::run(&args),
        Verb::Bench(args) => return bench::run(&args),
        Verb::Conformance(args) => return conformance::run(&args),
        Verb::Up(args) => playground::up(&args)?,
        Verb::Down => playground::down()?,
        Verb::Hold(args) => playground::hold(&args)?,
        Verb::Fuzz(args) => fuzz::run(&args)?,
        Verb::Lint => lint::run()?,
    }
    Ok(ExitCode::SUCCESS)
}
