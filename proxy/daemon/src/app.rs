//! The process: flags, logs, signals, exit code.

use std::ffi::OsString;
use std::future::Future;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::future::OptionFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, ExplainArgs, RunArgs, Verb};
use crate::chain::Chain;
use crate::cleanup;
use crate::client::{api_client, measured_client};
use crate::config::Config;
use crate::config_file::Followed;
use crate::explain;
use crate::install::{install, uninstall};
use crate::proc_sys;
use crate::run::run_with;
use crate::sources::Sources;

/// `EX_USAGE` of sysexits.h: bad flags or configuration; starting again does not help.
const EXIT_USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: what was asked cannot be found out.
const EXIT_UNAVAILABLE: u8 = 69;
/// How long a connection to the API server may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the process ends with an exit code other than 0.
enum Failure {
    Usage(anyhow::Error),
    Run(anyhow::Error),
    Unknown(anyhow::Error),
}

/// The whole program, from its command line to its exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::read(words) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    init_logs();
    match act(cli.verb) {
        Ok(code) => code,
        Err(Failure::Usage(error)) => {
            error!(error = %Chain(error.as_ref()), "Bad configuration");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Run(error)) => {
            error!(error = %Chain(error.as_ref()), "Ending");
            ExitCode::FAILURE
        }
        Err(Failure::Unknown(error)) => {
            error!(error = %Chain(error.as_ref()), "Cannot say");
            ExitCode::from(EXIT_UNAVAILABLE)
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

fn act(verb: Verb) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("seaway-proxy")
        .enable_all()
        .build()
        .context("start the async runtime")
        .map_err(Failure::Run)?;
    let done = |()| ExitCode::SUCCESS;
    let outcome = match verb {
        Verb::Explain(args) => runtime.block_on(explain_verb(args)),
        Verb::Status(args) => runtime
            .block_on(explain::status(&args))
            .map_err(Failure::Unknown),
        Verb::Run(args) => runtime.block_on(run_verb(*args)).map(done),
        Verb::Install(args) if args.remove => runtime
            .block_on(uninstall(args.installed()))
            .map(done)
            .map_err(Failure::Run),
        Verb::Install(args) => runtime
            .block_on(install(args.install()))
            .map(done)
            .map_err(Failure::Run),
        Verb::Cleanup(args) => runtime
            .block_on(cleanup(args.paths.config(), args.installed()))
            .map(done)
            .map_err(Failure::Run),
    };
    // Whatever was to be waited for has been; a stuck system call must not keep the process.
    runtime.shutdown_background();
    outcome
}

/// What the flags of `run` mean: the configuration, where the API server is, and the file to
/// follow.
async fn configured(
    args: &mut RunArgs,
) -> Result<(Config, kube::Config, Option<Followed>), Failure> {
    let host_name = nix::unistd::gethostname()
        .context("read the host name")
        .map_err(Failure::Run)?;
    let host_name = host_name.to_string_lossy();
    let followed = args.take_file(&host_name).map_err(Failure::Usage)?;
    let config = args
        .config(&host_name)
        .map_err(|error| Failure::Usage(error.into()))?;
    let kube = kube_config(args).await.map_err(Failure::Usage)?;
    Ok((config, kube, followed))
}

async fn explain_verb(mut args: Box<ExplainArgs>) -> Result<ExitCode, Failure> {
    let asked = explain::ask_daemon(&args).await;
    if let Some(code) = asked.map_err(Failure::Unknown)? {
        return Ok(code);
    }
    let (config, kube, _) = configured(&mut args.run).await?;
    let client = api_client(kube)
        .context("use the kubeconfig or service account")
        .map_err(Failure::Usage)?;
    let found = explain::alone(&args, &config, &client).await;
    found.map_err(Failure::Unknown)
}

async fn run_verb(mut args: RunArgs) -> Result<(), Failure> {
    let (config, kube, followed) = configured(&mut args).await?;
    for doubt in args.doubts() {
        warn!(doubt, "Doubtful configuration");
    }
    if let Some(value) = args.tuning.oom_score_adj {
        set_oom_score_adj(value);
    }
    proc_sys::make_writable();
    info!(url = %kube.cluster_url, "Following the API server");
    let api = measured_client(kube)
        .context("use the kubeconfig or service account")
        .map_err(Failure::Usage)?;
    let only_node = config
        .pod_network
        .is_none()
        .then_some(config.node_name.as_str());
    let sources = Sources::from_client(&api.client, only_node);
    let shutdown = CancellationToken::new();
    let running = run_with(config, sources, Some(api), shutdown.clone());
    until_stopped(running, followed, shutdown)
        .await
        .map_err(Failure::Run)
}

/// Waits for a signal, or for another file of configuration, and then for what is being done.
async fn until_stopped(
    running: impl Future<Output = anyhow::Result<()>>,
    followed: Option<Followed>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut term, mut int) = signals()?;
    let other_file = OptionFuture::from(followed.map(Followed::other));
    tokio::pin!(running);
    let mut outcome = Ok(());
    tokio::select! {
        result = &mut running => return result,
        Some(file) = other_file => {
            let file = file.display();
            outcome = Err(anyhow!("--config {file} says something else, which takes a new start"));
        }
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    info!("Stopping; what is in the kernel stays");
    shutdown.cancel();
    // Whoever has not been told by a signal has not been told twice by the first.
    let mut told = outcome.is_ok();
    loop {
        tokio::select! {
            result = &mut running => return result.and(outcome),
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        anyhow::ensure!(!told, "told to stop a second time");
        told = true;
    }
}

/// Without the right to it, it stays as it was.
fn set_oom_score_adj(value: i16) {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", value.to_string()) {
        warn!(value, %error, "Cannot set oom_score_adj");
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
            let name = || format!("use kubeconfig {}", path.display());
            let file = Kubeconfig::read_from(path).with_context(name)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &options)
                .await
                .with_context(name)?
        }
        None => kube::Config::incluster().with_context(|| {
            let what = "no --kubeconfig is given, and this is no pod with a service account";
            match &args.api_server {
                Some(url) => {
                    format!("--api-server {url} wants credentials from one of them: {what}")
                }
                None => what.to_owned(),
            }
        })?,
    };
    if let Some(url) = &args.api_server {
        config.cluster_url = url.parse().with_context(|| format!("--api-server {url}"))?;
    }
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}
