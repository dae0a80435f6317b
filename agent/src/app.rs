//! Wires the parts: one tree of tasks for each mode, and what happens at the end.
//!
//! On SIGTERM and SIGINT everything here ends; pods and kernel state stay as they are,
//! so that the agent can be replaced under running traffic. A second signal ends the
//! process at once.

mod pods;
mod run;
mod standalone;
mod tasks;

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, GetArgs};
use crate::{get, local};

/// How a start can fail.
#[derive(Debug)]
pub enum AppError {
    /// The command line, or a file that it names, is wrong.
    Usage(anyhow::Error),
    /// Something failed that may work another time.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for AppError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Marks an error as one of usage.
fn usage(error: impl Into<anyhow::Error>) -> AppError {
    AppError::Usage(error.into())
}

/// Does what `cli` says, until it is done or told to stop.
pub fn main(cli: Cli) -> Result<(), AppError> {
    log_to_stderr(&cli.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let result = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(*args).await,
            Command::Standalone(args) => standalone::standalone(*args).await,
            Command::Get(args) => show(args).await,
        }
    });
    // A blocking call that hangs (a dead disk) must not keep the process.
    runtime.shutdown_timeout(tasks::PATIENCE);
    result
}

/// `level` alone is meant for our own lines: the libraries below say at `debug` what
/// every frame of a connection holds.
fn log_to_stderr(wanted: &str) -> Result<(), AppError> {
    let quiet = [
        "h2",
        "hyper",
        "hyper_util",
        "kube_client",
        "rustls",
        "tonic",
        "tower",
    ];
    let is_level = wanted
        .parse::<tracing::Level>()
        .is_ok_and(|level| level > tracing::Level::INFO);
    let quiet = quiet.map(|library| format!(",{library}=info"));
    let quiet = if is_level {
        quiet.concat()
    } else {
        String::new()
    };
    // What fails there we say ourselves, with what it was for.
    let directives = format!("kube_client::client::builder=off,{wanted}{quiet}");
    let filter = EnvFilter::try_new(directives)
        .with_context(|| format!("--log {wanted}"))
        .map_err(usage)?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

async fn show(args: GetArgs) -> Result<(), AppError> {
    let listing = local::ask(&args.run_dir)
        .await
        .map_err(anyhow::Error::from)?;
    // Whoever reads standard output need not know; who cannot be told does not.
    drop(get::show_refused(&listing, &mut std::io::stderr().lock()));
    let now = jiff::Timestamp::now();
    let written = get::show(
        listing,
        args.what,
        args.output,
        now,
        &mut std::io::stdout().lock(),
    );
    match written {
        // `| head` has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("write to standard output")?),
    }
}
