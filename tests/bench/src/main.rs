//! `seaway-bench`: measures our programs and their peers side by side.
//!
//! A number of one machine at one time says little, so everything is a ratio to (or a
//! difference from) a peer that is measured in turns with ours, in the same run; see
//! [`stats`]. Each measurement has namespaces of its own; nothing leaves them.
//! `cargo xtask bench` builds and starts this program.
//!
//! It deliberately judges only what it measures: that the programs do the right thing is
//! for the tests.

#![allow(
    clippy::print_stdout,
    reason = "a command-line tool talks on its standard output"
)]

mod cni;
mod plugin;
mod proxy;
mod report;
mod site;
mod stats;
mod weigh;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "seaway-bench",
    about = "Our programs and their peers side by side"
)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The CNI plugin beside the reference plugins
    Cni(cni::Args),
    /// The service proxy beside kube-proxy
    Proxy(proxy::Args),
    /// Runs a program and prints the most memory that it took, in KiB
    #[command(hide = true)]
    Weigh { program: PathBuf },
}

/// How to tell the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people, on standard output
    #[default]
    Table,
    /// Also as JSON, in target/bench
    Json,
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
    match run(&cli.bench) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &Bench) -> Result<bool> {
    match bench {
        Bench::Cni(args) => cni::run(args),
        Bench::Proxy(args) => proxy::run(args),
        Bench::Weigh { program } => weigh::child(program).map(|()| true),
    }
}
