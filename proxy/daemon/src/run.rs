//! The tree of tasks.

use std::sync::Arc;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::client::MeasuredClient;
use crate::config::{Config, ServiceProxy};
use crate::events::{Events, Occurrence, Publisher, Served};
use crate::explain::{self, Desk};
use crate::health::server::HardFail;
use crate::health::{self, Health};
use crate::metrics::{self, Metrics};
use crate::nodes::{self, Nodes};
use crate::service_proxy::Feed;
use crate::sources::{Sources, WatchResult, follow};
use crate::upkeep::{self, Upkeep};

mod halves;
mod tasks;

use halves::{spawn_pod_network, spawn_service_proxy};
use tasks::Tasks;

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
    run_with(config, sources, None, shutdown).await
}

/// Likewise; `api` is told what an operator should see at the objects concerned, and how it
/// answers is among the metrics.
pub(crate) async fn run_with(
    config: Config,
    sources: Sources,
    api: Option<MeasuredClient>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    info!(?config, "Starting");
    let mut registry = Registry::default();
    let shared = Shared {
        health: Arc::new(Health::new(config.services.sync.period * 2)),
        metrics: Metrics::register(&mut registry, config.service_proxy),
        repair: Arc::default(),
        stop: shutdown.child_token(),
    };
    let api = api.map(|api| {
        api.requests.register(&mut registry);
        api.client
    });
    let mut tasks = Tasks::new(shared.stop.clone());
    let events = spawn_events(&mut tasks, &config.node_name, &shared, api);
    if config.service_proxy != ServiceProxy::Off {
        events.tell(Occurrence::starting(&config.node_name));
    }
    spawn_upkeep(&mut tasks, &config, &shared, &mut registry);
    spawn_servers(&mut tasks, &config, &shared, &events, registry);
    let feed = Feed::new(shared.metrics.clone());
    let intake = nodes::Intake::new(
        config.node_name.clone(),
        shared.health.clone(),
        feed.clone(),
    );
    let (desk, bell) = Desk::new(config.pod_ranges());
    let (health, metrics) = (shared.health.clone(), shared.metrics.clone());
    let server = explain::server::Server::new(&config, feed.clone(), health, metrics, bell);
    let answers = server.run(config.run_dir.clone(), shared.stop.clone());
    tasks.spawn("answers", answers);
    let nodes = spawn_nodes(&mut tasks, intake, &shared, sources.nodes);
    let services_synced = if config.service_proxy == ServiceProxy::Off {
        watch::channel(true).1
    } else {
        let watches = (sources.services, sources.endpoint_slices);
        spawn_service_proxy(&mut tasks, &config, &shared, events, feed, desk, watches)
    };
    if let Some(pod_network) = config.pod_network {
        let name = config.node_name;
        spawn_pod_network(
            &mut tasks,
            name,
            pod_network,
            shared,
            nodes,
            services_synced,
        );
    }
    tasks.supervise().await
}

/// What all tasks have in common.
struct Shared {
    health: Arc<Health>,
    metrics: Metrics,
    /// Asks for a round of the pod network.
    repair: Arc<Notify>,
    stop: CancellationToken,
}

fn spawn_events(
    tasks: &mut Tasks,
    node_name: &str,
    shared: &Shared,
    api: Option<Client>,
) -> Events {
    let Some(api) = api else {
        return Events::nowhere(node_name);
    };
    let (events, queue) = Events::queued(node_name);
    let publisher = Publisher::new(api, node_name, queue);
    tasks.spawn("events", publisher.run(shared.stop.clone()));
    events
}

fn spawn_servers(
    tasks: &mut Tasks,
    config: &Config,
    shared: &Shared,
    events: &Events,
    registry: Registry,
) {
    let hard_fail = |served| {
        let events = events.clone();
        let hard_fail = HardFail { served, events };
        config.bind_hard_fail.then_some(hard_fail)
    };
    if let Some(addr) = config.healthz_bind {
        let router = health::server::router(shared.health.clone(), shared.metrics.clone());
        tasks.spawn(
            "healthz",
            health::server::serve(addr, router, shared.stop.clone(), hard_fail(Served::Health)),
        );
    }
    if let Some(addr) = config.metrics_bind {
        let router = metrics::router(registry, config.service_proxy);
        tasks.spawn(
            "metrics",
            health::server::serve(
                addr,
                router,
                shared.stop.clone(),
                hard_fail(Served::Metrics),
            ),
        );
    }
}

/// Without a pod network of ours there is nothing to keep up.
fn spawn_upkeep(tasks: &mut Tasks, config: &Config, shared: &Shared, registry: &mut Registry) {
    let metrics = upkeep::Metrics::register(registry);
    if let Some(network) = &config.pod_network {
        let (repair, stop) = (shared.repair.clone(), shared.stop.clone());
        let upkeep = Upkeep::new(&config.upkeep, &network.run_dir, metrics, repair, stop);
        tasks.spawn("upkeep", upkeep.run());
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
