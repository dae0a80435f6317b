//! Where objects come from: the API server's watches, or anything alike.

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::chain::Chain;
use crate::outage::Outage;

mod lean;
mod watch;

use lean::LeanService;
pub(crate) use watch::WATCH;
pub use watch::lasting_watch;

/// One step of a watch: something changed, or the watch is broken for now.
pub type WatchResult<K> = Result<Event<K>, watcher::Error>;

/// The three kinds that a node's daemon follows.
///
/// Each stream begins with [`Event::Init`] and goes on for ever; after an error
/// it begins anew with everything.
#[expect(missing_debug_implementations, reason = "streams have nothing to show")]
pub struct Sources {
    /// All Services that are for a service proxy of a node.
    pub services: BoxStream<'static, WatchResult<Service>>,
    /// All EndpointSlices of such Services.
    pub endpoint_slices: BoxStream<'static, WatchResult<EndpointSlice>>,
    /// All Nodes, or only this one when there is no pod network to run.
    pub nodes: BoxStream<'static, WatchResult<Node>>,
}

/// Whoever has this label is another proxy's; kube-proxy's own selector.
const OTHER_PROXY: &str = "!service.kubernetes.io/service-proxy-name";
/// Headless Services have nothing for a proxy to do.
const NOT_HEADLESS: &str = "spec.clusterIP!=None";
/// Set on slices of headless Services by the controller.
const NOT_HEADLESS_SLICE: &str = "!service.kubernetes.io/headless";

impl Sources {
    /// Watches of an API server, with kube-proxy's selectors; a broken one is
    /// taken up again by itself, with growing pauses.
    ///
    /// With `only_node`, no other Node than that one is asked for.
    pub fn from_client(client: &Client, only_node: Option<&str>) -> Self {
        let of_services = watcher::Config::default()
            .labels(OTHER_PROXY)
            .fields(NOT_HEADLESS);
        let slices = watcher::Config::default().labels(NOT_HEADLESS_SLICE);
        let nodes = match only_node {
            Some(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
            None => watcher::Config::default(),
        };
        Self {
            services: services(client, of_services),
            endpoint_slices: lasting_watch(Api::all(client.clone()), slices),
            nodes: lasting_watch(Api::all(client.clone()), nodes),
        }
    }
}

/// A [`lasting_watch`] of all Services that `config` chooses. They have no conditions: one that
/// cannot be read would keep all others away.
pub fn services(
    client: &Client,
    config: watcher::Config,
) -> BoxStream<'static, WatchResult<Service>> {
    lean::services(Api::all(client.clone()), config)
}

/// All objects as they are now, under the same selectors; the Node of this name, if it is there.
pub(crate) async fn list(
    client: &Client,
    node: &str,
) -> Result<(Vec<Service>, Vec<EndpointSlice>, Option<Node>), kube::Error> {
    let of_services = ListParams::default()
        .labels(OTHER_PROXY)
        .fields(NOT_HEADLESS);
    let of_slices = ListParams::default().labels(NOT_HEADLESS_SLICE);
    let of_nodes = ListParams::default().fields(&format!("metadata.name={node}"));
    let services = Api::<LeanService>::all(client.clone());
    let services = services.list(&of_services).await?;
    let slices = Api::all(client.clone()).list(&of_slices).await?;
    let nodes = Api::<Node>::all(client.clone()).list(&of_nodes).await?;
    let named = |object: &Node| object.metadata.name.as_deref() == Some(node);
    let node = nodes.items.into_iter().find(named);
    let services = services.items.into_iter().map(Service::from).collect();
    Ok((services, slices.items, node))
}

/// A watch ended that should go on for ever.
#[derive(Debug, thiserror::Error)]
#[error("the watch of {0} ended")]
pub(crate) struct WatchEnded(&'static str);

/// Hands every event of `stream` to `handle` until `stop`; failures are logged here.
pub(crate) async fn follow<K>(
    kind: &'static str,
    mut stream: impl Stream<Item = WatchResult<K>> + Unpin,
    stop: CancellationToken,
    mut handle: impl FnMut(Event<K>),
) -> Result<(), WatchEnded> {
    let mut outage = Outage::default();
    while let Some(next) = stop.run_until_cancelled(stream.next()).await {
        match next {
            Some(Ok(event)) => {
                // Init only says that a list is being asked for, not that it came.
                if !matches!(event, Event::Init) && outage.over() {
                    // A watch that goes on where it broke off shows only with its next event,
                    // so how long the outage was cannot be told.
                    info!(kind, "Receiving from the API server again");
                }
                handle(event);
            }
            Some(Err(error)) => failed(kind, &error, &mut outage),
            None => return Err(WatchEnded(kind)),
        }
    }
    Ok(())
}

/// One outage has many faces, so their texts do not count.
fn failed(kind: &'static str, error: &watcher::Error, outage: &mut Outage) {
    let error = Chain(error);
    if outage.is_news(kind) {
        warn!(kind, %error, "Cannot watch the API server, trying again");
    } else {
        debug!(kind, %error, "Watch failed again, trying again");
    }
}
