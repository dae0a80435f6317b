//! The tree of tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span};

use crate::backends;
use crate::config::{Config, ServiceProxy};
use crate::health::{self, Health};
use crate::metrics::{self, Metrics};
use crate::nodes;
use crate::pod_network::PodNetworkLoop;
use crate::service_proxy::Feed;
use crate::service_proxy::sync::{SyncLoop, Timing};
use crate::sources::{Sources, follow};

/// How long a running apply may take to finish at the end; below Kubernetes'
/// default grace period of 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// Keeps this node's kernel in agreement with `sources` until `shutdown`.
///
/// Kernel state stays as it is at the end. A watch that fails is reported and
/// taken up again by its stream; meanwhile the node works on with what it has.
///
/// # Errors
/// One of the tasks has ended that should go on for ever: the backend cannot
/// work here, or a watch stream ended.
pub async fn run(
    config: Config,
    sources: Sources,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    info!(?config, "Starting");
    let stop = shutdown.child_token();
    let mut tasks = Tasks::new(stop.clone());
    let health = Arc::new(Health::new());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, config.service_proxy);
    if let Some(addr) = config.healthz_bind {
        let router = health::server::router(health.clone(), metrics.clone());
        tasks.spawn("healthz", health::server::serve(addr, router, stop.clone()));
    }
    if let Some(addr) = config.metrics_bind {
        let router = metrics::router(registry, config.service_proxy);
        tasks.spawn("metrics", health::server::serve(addr, router, stop.clone()));
    }

    let mut intake = nodes::Intake::new(config.node_name.clone(), health.clone());
    let nodes = intake.nodes();
    let Sources {
        services,
        endpoint_slices,
        nodes: node_stream,
    } = sources;
    let events = follow("Nodes", node_stream, stop.clone(), move |event| {
        intake.take(event);
    });
    tasks.spawn("nodes", events);

    let (synced, services_synced) = watch::channel(config.service_proxy == ServiceProxy::Off);
    if config.service_proxy != ServiceProxy::Off {
        let feed = Feed::new(metrics.clone());
        let events = follow("Services", services, stop.clone(), feed.intake());
        tasks.spawn("services", events);
        let events = follow(
            "EndpointSlices",
            endpoint_slices,
            stop.clone(),
            feed.intake(),
        );
        tasks.spawn("endpointslices", events);
        let sync = SyncLoop {
            feed,
            node_name: config.node_name.clone(),
            health: health.clone(),
            metrics: metrics.clone(),
            timing: Timing::DEFAULT,
            synced,
            stop: stop.clone(),
        };
        tasks.spawn("service-proxy", backends::run(config.clone(), sync));
    }
    if let Some(pod_network) = config.pod_network {
        let network = PodNetworkLoop {
            node_name: config.node_name,
            config: pod_network,
            nodes,
            services_synced,
            health,
            metrics,
            stop: stop.clone(),
        };
        tasks.spawn("pod-network", network.run());
    }
    tasks.supervise().await
}

/// Long-running tasks, of which none may end before the whole does.
struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
    stop: CancellationToken,
}

impl Tasks {
    fn new(stop: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            stop,
        }
    }

    fn spawn<E>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<anyhow::Error>,
    {
        let task = async move { (name, task.await.map_err(Into::into)) };
        self.set.spawn(task.instrument(info_span!("task", name)));
    }

    /// Waits for the first task to end, then lets the others finish what they are at.
    async fn supervise(mut self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        if let Some(first) = self.set.join_next().await {
            outcome = self.judge(first);
        }
        self.stop.cancel();
        let rest = async {
            while let Some(next) = self.set.join_next().await {
                debug!(?next, "Task ended");
            }
        };
        timeout(GRACE, rest)
            .await
            .context("finish what was being written to the kernel")?;
        outcome
    }

    fn judge(
        &self,
        ended: Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>,
    ) -> anyhow::Result<()> {
        let (name, result) = ended.context("a task panicked")?;
        result.with_context(|| format!("task {name} failed"))?;
        anyhow::ensure!(self.stop.is_cancelled(), "task {name} ended unexpectedly");
        Ok(())
    }
}
