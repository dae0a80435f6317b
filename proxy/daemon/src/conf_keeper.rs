//! The CNI conf and the plugin's state file, while the daemon runs.
//!
//! Both appear once the pod network serves, and again whenever somebody has taken
//! them away: a runtime without a conf makes the node unready. They stay when the
//! daemon ends, since pods can be started without it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seaway_podnet::{ConfError, ConfFile, NetworkConf, Serving, StateFile};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::chain::Chain;
use crate::config::PodNetworkConfig;
use crate::foreign_confs::{self, ForeignConf};
use crate::health::{CNI_CONF, Health};
use crate::metrics::Metrics;
use crate::pod_network::RoundPanicked;

/// How often the files are looked at: what a node may be unready for by somebody's mistake.
const CHECK: Duration = Duration::from_secs(2);

/// What the node can do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) conf: NetworkConf,
    pub(crate) serving: Serving,
}

/// The only one who writes the two files.
#[derive(Debug)]
pub(crate) struct ConfKeeper {
    promise: watch::Receiver<Option<Promise>>,
    health: Arc<Health>,
    metrics: Metrics,
    stop: CancellationToken,
    files: Files,
}

#[derive(Clone, Debug)]
struct Files {
    conf_dir: PathBuf,
    conf: ConfFile,
    state: StateFile,
}

/// What has been done and said already.
#[derive(Debug, Default)]
struct Done {
    written: Option<Promise>,
    error: Option<String>,
    foreign: BTreeSet<ForeignConf>,
}

impl ConfKeeper {
    pub(crate) fn new(
        config: &PodNetworkConfig,
        promise: watch::Receiver<Option<Promise>>,
        health: Arc<Health>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let files = Files {
            conf_dir: config.cni_conf_dir.clone(),
            conf: ConfFile::new(&config.cni_conf_dir, &config.run_dir),
            state: StateFile::new(&config.run_dir),
        };
        Self {
            promise,
            health,
            metrics,
            stop,
            files,
        }
    }

    /// Runs until stopped. What has been begun is always finished.
    pub(crate) async fn run(mut self) -> Result<(), RoundPanicked> {
        let files = self.files.clone();
        spawn_blocking(move || files.withdraw_stale())
            .await
            .map_err(RoundPanicked)?;
        let mut done = Done::default();
        loop {
            let (promise, files) = (self.promise.borrow_and_update().clone(), self.files.clone());
            let waits = promise.is_some() && (promise != done.written || done.error.is_some());
            if waits {
                // Before the attempt, which may hang as long as the disk does.
                self.health.queued(CNI_CONF, Instant::now());
            }
            done = spawn_blocking(move || files.look(promise, done))
                .await
                .map_err(RoundPanicked)?;
            if done.error.is_some() {
                self.health.queued(CNI_CONF, Instant::now());
            } else if waits {
                self.health.updated(CNI_CONF);
            }
            self.count(&done);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                Ok(()) = self.promise.changed() => {}
                () = sleep(CHECK) => {}
            }
        }
    }

    fn count(&self, done: &Done) {
        let metrics = &self.metrics.pod_network;
        if done.error.is_some() {
            metrics.failures.inc();
        }
        let first = done.foreign.iter().any(|conf| conf.first);
        metrics.foreign_confs(done.foreign.len(), first);
    }
}

impl Files {
    /// A conf of an earlier boot makes the runtime start pods on a node that has nothing.
    fn withdraw_stale(&self) {
        match self.conf.withdraw_stale() {
            Ok(true) => {
                info!(path = %self.conf.path().display(), "Withdrew the CNI conf of an earlier boot");
            }
            Ok(false) => {}
            Err(error) => {
                warn!(error = %Chain(&error), "Cannot withdraw the CNI conf of an earlier boot");
            }
        }
        if let Err(error) = self.state.withdraw_stale() {
            warn!(error = %Chain(&error), "Cannot withdraw the state of an earlier boot");
        }
    }

    fn look(&self, promise: Option<Promise>, mut done: Done) -> Done {
        if let Some(promise) = promise {
            match self.keep(&promise, done.written.as_ref()) {
                Ok(()) => {
                    done.written = Some(promise);
                    done.error = None;
                }
                Err(error) => {
                    let error = Chain(&error).to_string();
                    if done.error.as_ref() != Some(&error) {
                        warn!(error, "Cannot write the CNI conf, trying again");
                    }
                    done.error = Some(error);
                }
            }
        }
        // A folder that cannot be listed is told of by whoever writes into it.
        if let Ok(found) = foreign_confs::find(&self.conf_dir) {
            let found: BTreeSet<_> = found.into_iter().collect();
            let new: Vec<_> = found.difference(&done.foreign).cloned().collect();
            foreign_confs::report(&self.conf_dir, &new);
            done.foreign = found;
        }
        done
    }

    /// The state goes first: with a conf that names none the plugin would be unready.
    fn keep(&self, promise: &Promise, written: Option<&Promise>) -> Result<(), ConfError> {
        self.state.write(&promise.serving)?;
        if !self.conf.write(&promise.conf)? {
            return Ok(());
        }
        let (path, NetworkConf { pod_cidrs, mtu, .. }) =
            (self.conf.path().display(), &promise.conf);
        if written == Some(promise) {
            warn!(%path, "Wrote the CNI conf again, somebody had removed or changed it");
        } else {
            info!(%path, ?pod_cidrs, mtu, "Wrote the CNI conf");
        }
        Ok(())
    }
}
