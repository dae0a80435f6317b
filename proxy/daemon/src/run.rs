//! The tree of tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span};

use crate::backends;
use crate::config::{Config, ServiceProxy};
use crate::health::{self, Health};
use crate::health_checks::{HealthChecks, Wanted};
use crate::metrics::{self, Metrics};
use crate::nodes::{self, Nodes};
use crate::pod_network::PodNetworkLoop;
use crate::service_proxy::sync::{SyncLoop, Timing};
use crate::service_proxy::{Feed, Followed};
use crate::sources::{Sources, WatchResult, follow};

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
    let mut registry = Registry::default();
    let shared = Shared {
        health: Arc::new(Health::new()),
        metrics: Metrics::register(&mut registry, config.service_proxy),
        stop: shutdown.child_token(),
    };
    let mut tasks = Tasks::new(shared.stop.clone());
    spawn_servers(&mut tasks, &config, &shared, registry);
    let feed = Feed::new(shared.metrics.clone());
    let intake = nodes::Intake::new(
        config.node_name.clone(),
        shared.health.clone(),
        feed.clone(),
    );
    let nodes = spawn_nodes(&mut tasks, intake, &shared, sources.nodes);
    let services_synced = if config.service_proxy == ServiceProxy::Off {
        watch::channel(true).1
    } else {
        let (services, slices) = (sources.services, sources.endpoint_slices);
        spawn_service_proxy(&mut tasks, &config, &shared, feed, services, slices)
    };
    if let Some(pod_network) = config.pod_network {
        let network = PodNetworkLoop {
            node_name: config.node_name,
            config: pod_network,
            nodes,
            services_synced,
            health: shared.health,
            metrics: shared.metrics,
            stop: shared.stop,
        };
        tasks.spawn("pod-network", network.run());
    }
    tasks.supervise().await
}

/// What all tasks have in common.
struct Shared {
    health: Arc<Health>,
    metrics: Metrics,
    stop: CancellationToken,
}

fn spawn_servers(tasks: &mut Tasks, config: &Config, shared: &Shared, registry: Registry) {
    if let Some(addr) = config.healthz_bind {
        let router = health::server::router(shared.health.clone(), shared.metrics.clone());
        tasks.spawn(
            "healthz",
            health::server::serve(addr, router, shared.stop.clone()),
        );
    }
    if let Some(addr) = config.metrics_bind {
        let router = metrics::router(registry, config.service_proxy);
        tasks.spawn(
            "metrics",
            health::server::serve(addr, router, shared.stop.clone()),
        );
    }
}

fn spawn_nodes(
    tasks: &mut Tasks,
    mut intake: nodes::Intake,
    shared: &Shared,
    stream: BoxStream<'static, WatchResult<Node>>,
) -> watch::Receiver<Nodes> {
    let nodes = intake.nodes();
    let take = move |event| intake.take(event);
    tasks.spawn("nodes", follow("Nodes", stream, shared.stop.clone(), take));
    nodes
}

/// Gives the receiver of "everything is programmed".
fn spawn_service_proxy(
    tasks: &mut Tasks,
    config: &Config,
    shared: &Shared,
    feed: Arc<Feed>,
    services: BoxStream<'static, WatchResult<Service>>,
    slices: BoxStream<'static, WatchResult<EndpointSlice>>,
) -> watch::Receiver<bool> {
    let stop = || shared.stop.clone();
    tasks.spawn(
        "services",
        follow(Service::KIND, services, stop(), feed.intake()),
    );
    tasks.spawn(
        "endpointslices",
        follow(EndpointSlice::KIND, slices, stop(), feed.intake()),
    );
    let (synced, services_synced) = watch::channel(false);
    let (health_checks, wanted) = watch::channel(Wanted::default());
    // With eBPF this node serves no load balancer yet, so it must not ask for one's traffic.
    if config.service_proxy == ServiceProxy::Iptables {
        let checks = HealthChecks::new(wanted, shared.health.clone(), stop());
        tasks.spawn("health-checks", checks.run());
    }
    let sync = SyncLoop {
        feed,
        node_name: config.node_name.clone(),
        config: config.services.clone(),
        health: shared.health.clone(),
        metrics: shared.metrics.clone(),
        timing: Timing::DEFAULT,
        synced,
        health_checks,
        stop: stop(),
    };
    tasks.spawn("service-proxy", backends::run(config.clone(), sync));
    services_synced
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
