//! Tasks of the two halves: the service proxy and the pod network.

use std::sync::Arc;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;

use super::Shared;
use super::tasks::Tasks;
use crate::backends;
use crate::conf_keeper::ConfKeeper;
use crate::config::{Config, PodNetworkConfig, ServiceProxy};
use crate::events::Events;
use crate::explain::Desk;
use crate::foreign_firewall::ForeignFirewall;
use crate::health_checks::{HealthChecks, Wanted};
use crate::nodes::Nodes;
use crate::pod_network::{PodNetworkLoop, Prober, Probing};
use crate::service_proxy::sync::{SyncLoop, Timing};
use crate::service_proxy::{Feed, Followed};
use crate::sources::{WatchResult, follow};

/// Gives the receiver of "everything is programmed".
pub(super) fn spawn_service_proxy(
    tasks: &mut Tasks,
    config: &Config,
    shared: &Shared,
    events: Events,
    feed: Arc<Feed>,
    desk: Desk,
    (services, slices): (
        BoxStream<'static, WatchResult<Service>>,
        BoxStream<'static, WatchResult<EndpointSlice>>,
    ),
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
        let checks = HealthChecks::new(wanted, shared.health.clone(), events, stop());
        tasks.spawn("health-checks", checks.run());
    }
    let sync = SyncLoop {
        feed,
        node_name: config.node_name.clone(),
        config: config.services.clone(),
        health: shared.health.clone(),
        metrics: shared.metrics.clone(),
        timing: Timing::of(&config.services.sync),
        synced,
        health_checks,
        desk,
        stop: stop(),
    };
    tasks.spawn("service-proxy", backends::run(config.clone(), sync));
    services_synced
}

pub(super) fn spawn_pod_network(
    tasks: &mut Tasks,
    node_name: String,
    config: PodNetworkConfig,
    shared: Shared,
    nodes: watch::Receiver<Nodes>,
    services_synced: watch::Receiver<bool>,
) {
    let (probing, to_probe) = watch::channel(Probing::default());
    let (proves, proven) = watch::channel(None);
    let (metrics, stop) = (shared.metrics.clone(), shared.stop.clone());
    let prober = Prober::new(&node_name, to_probe, proves, metrics, stop);
    tasks.spawn("probes", prober.run());
    let (promise, promised) = watch::channel(None);
    let (metrics, stop) = (shared.metrics.clone(), shared.stop.clone());
    let health = shared.health.clone();
    let keeper = ConfKeeper::new(&config, promised, health, metrics, stop);
    tasks.spawn("cni-conf", keeper.run());
    let others = ForeignFirewall::new(shared.metrics.clone(), shared.stop.clone());
    tasks.spawn("foreign-firewall", others.run());
    let network = PodNetworkLoop {
        node_name,
        config,
        nodes,
        services_synced,
        proven,
        probing,
        promise,
        health: shared.health,
        metrics: shared.metrics,
        repair: shared.repair,
        stop: shared.stop,
    };
    tasks.spawn("pod-network", network.run());
}
