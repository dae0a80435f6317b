//! Flags of the verbs that only look.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use seaway_proxy_core::explain::Target;

use super::{PathArgs, RunArgs};

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Address and port that clients send to, as in 10.96.0.1:443, `[fd00::1]:53/UDP` or, for a
    /// NodePort, 172.30.0.11:30080; TCP if no protocol is given
    #[arg(value_name = "ADDRESS:PORT[/PROTO]")]
    pub target: Target,
    /// The client; one of each sort if not given
    #[arg(long, value_name = "IP")]
    pub from: Option<IpAddr>,
    /// How the answer is written
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Those of `run`, for when no daemon runs
    #[command(flatten)]
    pub run: RunArgs,
}

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// How the answer is written
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Where things are kept
    #[command(flatten)]
    pub paths: PathArgs,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}
