//! The process: flags, logs, signals, exit code.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, RunArgs, Verb};
use crate::chain::Chain;
use crate::client::api_client;
use crate::sources::Sources;
use crate::{cleanup, run};

/// `EX_USAGE` of sysexits.h: bad flags or configuration; starting again does not help.
const EXIT_USAGE: u8 = 64;
/// How long a connection to the API server may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the process ends with an exit code other than 0.
enum Failure {
    Usage(anyhow::Error),
    Run(anyhow::Error),
}

/// The whole program, from its command line to its exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    init_logs();
    match act(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => {
            error!(error = %Chain(error.as_ref()), "Bad configuration");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Run(error)) => {
            error!(error = %Chain(error.as_ref()), "Ending");
            ExitCode::FAILURE
        }
    }
}

/// Help and version are no errors, everything else that clap stops at is.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when the terminal is gone.
    error.print().ok();
    if error.use_stderr() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Logs go to stderr; RUST_LOG chooses. Crates that use `log` are bridged by `init`.
fn init_logs() {
    // Each failed request would be told by these, too; the watches report it once, and better.
    let quiet = |directive: &str| directive.parse().expect("a constant directive");
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .from_env_lossy()
        .add_directive(quiet("kube_client::client::builder=off"))
        .add_directive(quiet("kube_runtime::watcher=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

fn act(verb: Verb) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("seaway-proxy")
        .enable_all()
        .build()
        .context("start the async runtime")
        .map_err(Failure::Run)?;
    let outcome = match verb {
        Verb::Run(args) => runtime.block_on(run_verb(&args)),
        Verb::Cleanup(paths) => runtime
            .block_on(cleanup(paths.config()))
            .map_err(Failure::Run),
    };
    // Whatever was to be waited for has been; a stuck system call must not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn run_verb(args: &RunArgs) -> Result<(), Failure> {
    let host_name = nix::unistd::gethostname()
        .context("read the host name")
        .map_err(Failure::Run)?;
    let config = args
        .config(&host_name.to_string_lossy())
        .map_err(|error| Failure::Usage(error.into()))?;
    let kube = kube_config(args).await.map_err(Failure::Usage)?;
    info!(url = %kube.cluster_url, "Following the API server");
    let client = api_client(kube)
        .context("use the kubeconfig or service account")
        .map_err(Failure::Usage)?;
    let only_node = config
        .pod_network
        .is_none()
        .then_some(config.node_name.as_str());
    let sources = Sources::from_client(&client, only_node);
    let (mut term, mut int) = signals().map_err(Failure::Run)?;
    let shutdown = CancellationToken::new();
    let running = run(config, sources, shutdown.clone());
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => return result.map_err(Failure::Run),
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    info!("Stopping; what is in the kernel stays");
    shutdown.cancel();
    tokio::select! {
        result = running => result.map_err(Failure::Run),
        _ = term.recv() => Err(Failure::Run(anyhow::anyhow!("told to stop a second time"))),
        _ = int.recv() => Err(Failure::Run(anyhow::anyhow!("told to stop a second time"))),
    }
}

fn signals() -> anyhow::Result<(Signal, Signal)> {
    let term = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let int = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    Ok((term, int))
}

/// Reads files only; whether the API server is there shows later.
async fn kube_config(args: &RunArgs) -> anyhow::Result<kube::Config> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let name = || format!("--kubeconfig {}", path.display());
            let file = Kubeconfig::read_from(path).with_context(name)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &options)
                .await
                .with_context(name)?
        }
        None => kube::Config::incluster()
            .context("no --kubeconfig is given, and this is no pod with a service account")?,
    };
    if let Some(url) = &args.api_server {
        config.cluster_url = url.parse().with_context(|| format!("--api-server {url}"))?;
    }
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}
