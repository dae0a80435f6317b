//! Chooses the backend, once, and sees to it that no other one is left active.

use std::future::Future;
use std::path::{Path, PathBuf};

use futures::TryFutureExt;
use seaway_ebpf_loader::{EbpfBackend, EbpfLogs, Options};
use seaway_proxy_core::backend::{BackendError, Retry};
use seaway_proxy_iptables::Iptables;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing::{debug, info, warn};

use crate::chain::Chain;
use crate::config::{Config, ConntrackConfig, ServiceProxy, ServicesConfig};
use crate::conntrack::{Applied, Knobs, apply_when_loaded};
use crate::service_proxy::sync::{SyncLoop, Timing};

/// The backend cannot work here, and trying again would not help.
#[derive(Debug, thiserror::Error)]
#[error("open the {backend} backend")]
pub(crate) struct CannotOpen {
    backend: &'static str,
    #[source]
    source: BackendError,
}

/// Opens what `config` chooses and keeps it in agreement with the feed.
pub(crate) async fn run(config: Config, sync: SyncLoop) -> Result<(), CannotOpen> {
    let stop = sync.stop.clone();
    let synced = sync.synced.subscribe();
    match config.service_proxy {
        ServiceProxy::Ebpf => {
            let options = ebpf_options(&config);
            let open = || open_ebpf(options.clone());
            let Some(mut backend) = open_until(open, "ebpf", &sync).await? else {
                return Ok(());
            };
            let logs = backend.take_logs();
            let (run_dir, dir) = (config.run_dir.clone(), config.bpffs_dir.clone());
            let remove = || remove_leftover_rules(run_dir.clone());
            let rules = remove_other(synced.clone(), stop.clone(), remove);
            let remove = || remove_other_versions(dir.clone());
            let versions = remove_other(synced, stop.clone(), remove);
            tokio::join!(read_logs(logs, stop), sync.run(backend), rules, versions);
        }
        ServiceProxy::Iptables => {
            let knobs = Knobs::default();
            let conntrack = config.services.conntrack.clone();
            let applied = knobs.apply(&conntrack);
            let be_liberal = is_or_becomes_liberal(knobs.be_liberal(), applied, &conntrack);
            let iptables = iptables_config(&config.run_dir, &config.services, be_liberal);
            let open = || Iptables::for_writing(iptables.clone());
            let Some(backend) = open_until(open, "iptables", &sync).await? else {
                return Ok(());
            };
            info!(flavour = %backend.flavour(), "Using iptables");
            let dir = config.bpffs_dir.clone();
            let remove = || remove_ebpf(dir.clone()).map_ok(|_any| ());
            let other = remove_other(synced.clone(), stop.clone(), remove);
            let later = apply_when_loaded(applied, knobs, conntrack, synced, stop);
            tokio::join!(sync.run(backend), other, later);
        }
        ServiceProxy::Off => {}
    }
    Ok(())
}

/// Opens until it works, it never will, or nobody wants it any more.
async fn open_until<B, F: Future<Output = Result<B, BackendError>>>(
    open: impl Fn() -> F,
    backend: &'static str,
    sync: &SyncLoop,
) -> Result<Option<B>, CannotOpen> {
    let mut backoff = Timing::DEFAULT.backoff();
    loop {
        let Some(opened) = sync.stop.run_until_cancelled(open()).await else {
            return Ok(None);
        };
        let error = match opened {
            Ok(opened) => {
                sync.desk.can_begin();
                return Ok(Some(opened));
            }
            Err(source) if source.retry() == Retry::Never => {
                return Err(CannotOpen { backend, source });
            }
            Err(error) => error,
        };
        warn!(backend, error = %Chain(&error), "Cannot open the backend, trying again");
        let pause = backoff.next().unwrap_or(Timing::DEFAULT.retry_max);
        let closed = sync.closed(backend, &error, pause);
        if sync.stop.run_until_cancelled(closed).await.is_none() {
            return Ok(None);
        }
    }
}

pub(crate) fn ebpf_options(config: &Config) -> Options {
    Options {
        bpffs_dir: config.bpffs_dir.clone(),
        cgroup_root: config.cgroup_root.clone(),
        // What nobody would see is not to be written either.
        log_level: LevelFilter::current(),
    }
}

/// What is not loaded yet cannot be read, but becomes what is asked for. Once it is loaded the
/// kernel's word counts: a setting may be refused.
fn is_or_becomes_liberal(is: bool, applied: Applied, conntrack: &ConntrackConfig) -> bool {
    is || (applied == Applied::NotLoaded && conntrack.tcp_be_liberal)
}

/// Where conntrack `be_liberal`, it places what it would call invalid otherwise.
fn iptables_config(
    run_dir: &Path,
    services: &ServicesConfig,
    be_liberal: bool,
) -> seaway_proxy_iptables::Config {
    seaway_proxy_iptables::Config {
        run_dir: run_dir.to_owned(),
        drop_invalid: !be_liberal,
        masquerade_mark: 1 << services.masquerade_bit,
        ..seaway_proxy_iptables::Config::default()
    }
}

/// Loading takes the verifier's time, so it is not done on a runtime thread.
async fn open_ebpf(options: Options) -> Result<EbpfBackend, BackendError> {
    blocking(move || EbpfBackend::open(&options)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, seaway_ebpf_loader::Error> + Send + 'static,
) -> Result<T, BackendError> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(BackendError::from),
        Err(panicked) => Err(panic_error(panicked)),
    }
}

fn panic_error(panicked: JoinError) -> BackendError {
    BackendError::new("run a step on a blocking thread", Retry::Never).because(panicked)
}

async fn read_logs(logs: Option<EbpfLogs>, stop: CancellationToken) {
    let Some(logs) = logs else { return };
    if let Some(Err(error)) = stop.run_until_cancelled(logs.run()).await {
        warn!(%error, "Cannot read the log of the eBPF programs; they work on");
    }
}

/// Removes what is left of the other backend, or of another version, once this one serves
/// everything, so that a change has no gap, and no two for one Service afterwards.
async fn remove_other<F: Future<Output = Result<(), BackendError>>>(
    mut synced: watch::Receiver<bool>,
    stop: CancellationToken,
    remove: impl Fn() -> F,
) {
    let work = async {
        // A closed channel means that the loop has ended, so this has, too.
        if synced.wait_for(|synced| *synced).await.is_err() {
            return;
        }
        let mut backoff = Timing::DEFAULT.backoff();
        let mut told = String::new();
        while let Err(error) = remove().await {
            let error = Chain(&error).to_string();
            // Another daemon may be there for long.
            if error == told {
                debug!(
                    error,
                    "Still cannot remove what another backend or version has left"
                );
            } else {
                warn!(
                    error,
                    "Cannot remove what another backend or version has left, trying again"
                );
            }
            told = error;
            tokio::time::sleep(backoff.next().unwrap_or(Timing::DEFAULT.retry_max)).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Removes all iptables rules of ours; tells whether there were any.
///
/// # Errors
/// Also where there is no iptables: other eyes may see rules of ours all the same.
pub(crate) async fn remove_iptables(run_dir: PathBuf) -> Result<bool, BackendError> {
    remove_rules(open_iptables(&run_dir).await?).await
}

async fn remove_other_versions(dir: PathBuf) -> Result<(), BackendError> {
    let removed = blocking(move || seaway_ebpf_loader::remove_other_versions(&dir)).await;
    removed.map(|_any| ())
}

/// What an earlier choice of backend left. Without iptables it is not looked for.
async fn remove_leftover_rules(run_dir: PathBuf) -> Result<(), BackendError> {
    match open_iptables(&run_dir).await {
        Ok(iptables) => remove_rules(iptables).await.map(|_any| ()),
        Err(error) if error.retry() == Retry::Never => {
            debug!(error = %Chain(&error), "No iptables here, so no leftovers are looked for");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn open_iptables(run_dir: &Path) -> impl Future<Output = Result<Iptables, BackendError>> + use<> {
    Iptables::new(iptables_config(run_dir, &ServicesConfig::default(), false))
}

/// As [`run`] does, for somebody who only looks.
pub(crate) fn iptables_to_look_at(
    config: &Config,
) -> impl Future<Output = Result<Iptables, BackendError>> + use<> {
    let be_liberal = Knobs::default().be_liberal();
    Iptables::new(iptables_config(
        &config.run_dir,
        &config.services,
        be_liberal,
    ))
}

async fn remove_rules(mut iptables: Iptables) -> Result<bool, BackendError> {
    iptables.remove_everything().await
}

/// Removes all BPF objects of ours, of whichever version; tells whether there were any.
pub(crate) async fn remove_ebpf(dir: PathBuf) -> Result<bool, BackendError> {
    blocking(move || seaway_ebpf_loader::remove_all(&dir)).await
}

#[cfg(test)]
mod tests {
    use seaway_proxy_core::backend::Backend as _;
    use seaway_proxy_core::desired::DesiredState;
    use seaway_proxy_iptables::Flavour;

    use super::*;

    #[tokio::test]
    async fn a_liberal_kernel_needs_no_drop_of_what_is_invalid() {
        for (liberal, drops) in [(false, true), (true, false)] {
            let services = ServicesConfig::default();
            let config = seaway_proxy_iptables::Config {
                // Nothing needs to be found out, so no command is run.
                flavour: Some(Flavour::Nft),
                ipv6: Some(true),
                affinity: Some(true),
                ..iptables_config(Path::new("/run"), &services, liberal)
            };
            let rules = Iptables::new(config).await.expect("nothing can fail");
            let rules = rules.render(&DesiredState::default()).to_string();
            assert_eq!(rules.contains("INVALID"), drops, "{rules}");
        }
    }

    #[test]
    fn a_kernel_that_has_not_loaded_conntrack_becomes_as_liberal_as_asked_for() {
        for (is, applied, asked, expect) in [
            (false, Applied::NotLoaded, true, true),
            (false, Applied::NotLoaded, false, false),
            // It could not be set.
            (false, Applied::All, true, false),
            // By somebody else.
            (true, Applied::All, false, true),
        ] {
            let conntrack = ConntrackConfig {
                tcp_be_liberal: asked,
                ..ConntrackConfig::default()
            };
            let found = is_or_becomes_liberal(is, applied, &conntrack);
            assert_eq!(found, expect, "{is} {applied:?} {asked}");
        }
    }

    #[test]
    fn the_mark_is_the_bit_that_was_chosen() {
        let mut services = ServicesConfig::default();
        for (bit, mark) in [(14, 0x4000), (2, 4), (31, 0x8000_0000)] {
            services.masquerade_bit = bit;
            let config = iptables_config(Path::new("/run"), &services, false);
            assert_eq!(config.masquerade_mark, mark);
        }
    }
}
