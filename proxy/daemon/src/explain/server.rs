//! Answers on a socket that only root may open.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use seaway_podnet::ConfFile;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::desk::Bell;
use super::look::Look;
use super::status::{PodNetwork, ProxyStatus, Status};
use super::{Request, SOCKET};
use crate::config::{Config, PodNetworkConfig, ServiceProxy};
use crate::health::{Health, POD_NETWORK};
use crate::metrics::Metrics;
use crate::service_proxy::Feed;

/// Longest question, bytes.
const LINE_MAX: u64 = 4096;
/// How long a question may take to come.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long `status` waits for a look at the kernel. Thousands of Services are read in less, and
/// what is known without it should not be kept from a person for longer.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the socket is tried to be made again.
const RETRY: Duration = Duration::from_secs(5);

/// Everything that answers are made of.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) node_name: String,
    pub(crate) service_proxy: ServiceProxy,
    pub(crate) pod_network: Option<PodNetworkConfig>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    pub(crate) bell: Bell,
}

impl Server {
    pub(crate) fn new(
        config: &Config,
        feed: Arc<Feed>,
        health: Arc<Health>,
        metrics: Metrics,
        bell: Bell,
    ) -> Self {
        Self {
            node_name: config.node_name.clone(),
            service_proxy: config.service_proxy,
            pod_network: config.pod_network.clone(),
            feed,
            health,
            metrics,
            bell,
        }
    }

    /// Answers below `run_dir` until `stop`. Without a socket the node works on.
    pub(crate) async fn run(self, run_dir: PathBuf, stop: CancellationToken) -> io::Result<()> {
        let server = Arc::new(self);
        let path = run_dir.join(SOCKET);
        let serve = async {
            let listener = listen(&run_dir, &path).await;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(server.clone().serve(stream))),
                    Err(error) => {
                        warn!(%error, "Cannot accept a question");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(serve).await.unwrap_or(());
        remove(&run_dir)
    }

    async fn serve(self: Arc<Self>, stream: UnixStream) {
        if let Err(error) = self.exchange(stream).await {
            debug!(%error, "A question came to nothing");
        }
    }

    async fn exchange(&self, stream: UnixStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut line = String::new();
        let mut reader = BufReader::new(reader.take(LINE_MAX));
        timeout(PATIENCE, reader.read_line(&mut line)).await??;
        let answer = match serde_json::from_str(&line) {
            Ok(request) => self.answer(request).await,
            Err(error) => Err(format!("no such question: {error}")),
        };
        writer.write_all(&serde_json::to_vec(&answer)?).await?;
        writer.shutdown().await
    }

    async fn answer(&self, request: Request) -> Result<Value, String> {
        let (target, from) = match request {
            Request::Status => return json(&self.status().await),
            Request::Explain { target, from } => (target, from),
        };
        if self.service_proxy == ServiceProxy::Off {
            return Err("--service-proxy=off, so Services are somebody else's here".to_owned());
        }
        if !self.feed.progress().borrow().in_sync() {
            return Err(
                "the API server has not told all Services and EndpointSlices yet".to_owned(),
            );
        }
        match self.bell.ask(target, from).await {
            Some(report) => json(&report?),
            None => Err("the service proxy is ending".to_owned()),
        }
    }

    async fn status(&self) -> Status {
        let proxy = if self.service_proxy == ServiceProxy::Off {
            None
        } else {
            Some(self.proxy().await)
        };
        let pod_network = self.pod_network.as_ref();
        let pod_network = pod_network.map(|config| self.pod_network(config));
        Status::of(self.node_name.clone(), proxy, pod_network)
    }

    /// What is known is told in any case; the kernel is looked at where it could agree.
    async fn proxy(&self) -> ProxyStatus {
        // What comes meanwhile waits for the look, which is no reason not to be in sync.
        let known = self.known();
        let kernel = match known.unsettled() {
            Some(why) => Look::unknown(why),
            None => self.bell.look(LOOK_PATIENCE).await,
        };
        ProxyStatus { kernel, ..known }
    }

    fn known(&self) -> ProxyStatus {
        let said = self.bell.said();
        let age = |at: Timestamp| Timestamp::now().as_second() - at.as_second();
        let metrics = &self.metrics;
        ProxyStatus {
            backend: said
                .backend
                .unwrap_or(self.service_proxy.as_str())
                .to_owned(),
            variant: said.variant,
            received: self.feed.progress().borrow().in_sync(),
            last_sync: said.synced,
            sync_age_seconds: said.synced.map(age),
            pending_changes: metrics.service_changes.pending() + metrics.endpoint_changes.pending(),
            failures: said.failures,
            last_error: said.error,
            kernel: Look::default(),
            drift_repaired: said.drift_repaired,
            drift_last: said.drift_last,
            services: self.feed.model().services().count(),
            service_ports: said.service_ports,
            endpoints: said.endpoints,
            skipped: said.skipped,
        }
    }

    fn pod_network(&self, config: &PodNetworkConfig) -> PodNetwork {
        let part = self.health.part(POD_NETWORK);
        let conf = ConfFile::new(&config.cni_conf_dir, &config.run_dir);
        PodNetwork {
            in_sync: part.is_some_and(|part| part.done),
            last_sync: part.and_then(|part| part.done.then_some(part.updated)),
            cni_conf: conf.path().exists(),
        }
    }
}

fn json<T: serde::Serialize>(answer: &T) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

async fn listen(run_dir: &Path, path: &Path) -> UnixListener {
    loop {
        match bind(run_dir, path) {
            Ok(listener) => return listener,
            Err(error) => {
                warn!(path = %path.display(), %error, "Cannot listen for explain and status, trying again");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Nobody else can open it at any time; a dead daemon's socket is replaced.
fn bind(run_dir: &Path, path: &Path) -> io::Result<UnixListener> {
    fs::create_dir_all(run_dir)?;
    let made = run_dir.join(format!(".seaway-{SOCKET}.tmp"));
    absent_is_fine(fs::remove_file(&made))?;
    let listener = UnixListener::bind(&made)?;
    fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    fs::rename(&made, path)?;
    Ok(listener)
}

/// Removes the socket that a daemon has left.
///
/// # Errors
/// The file system refuses.
pub(crate) fn remove(run_dir: &Path) -> io::Result<()> {
    absent_is_fine(fs::remove_file(run_dir.join(SOCKET)))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
