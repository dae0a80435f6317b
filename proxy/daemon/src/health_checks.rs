//! `spec.healthCheckNodePort`: tells load balancers how many endpoints this node has.
//!
//! One HTTP server per Service, family and address; they come and go with what the
//! last good round of the sync loop has put into the kernel. Each family counts its
//! own endpoints, because a load balancer asks over the one that it forwards.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use seaway_proxy_core::desired::Family;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::events::{Events, Occurrence};
use crate::health::Health;

mod server;
#[cfg(test)]
mod tests;
mod wanted;

use server::Server;
use wanted::Listener;
pub(crate) use wanted::Wanted;

/// How often a port that could not be had is tried again, and the node's addresses
/// are looked at: kube-proxy's pause for its own servers.
const RETRY: Duration = Duration::from_secs(5);
/// The pause when nothing is listened on.
const FOR_EVER: Duration = Duration::from_hours(24);
/// How long one that still answers may keep a change from being made.
const FAREWELL: Duration = Duration::from_secs(1);

/// All servers, and who decides about them.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    wanted: watch::Receiver<Wanted>,
    health: Arc<Health>,
    events: Events,
    stop: CancellationToken,
    open: BTreeMap<(Listener, IpAddr), Server>,
    /// What could not be listened on, and has been told.
    failed: BTreeMap<(Listener, IpAddr), String>,
}

impl HealthChecks {
    pub(crate) fn new(
        wanted: watch::Receiver<Wanted>,
        health: Arc<Health>,
        events: Events,
        stop: CancellationToken,
    ) -> Self {
        Self {
            wanted,
            health,
            events,
            stop,
            open: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Runs until stopped; all servers end with it.
    pub(crate) async fn run(mut self) -> Result<(), std::convert::Infallible> {
        let stop = self.stop.clone();
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            self.follow(&wanted).await;
            let changed = self.wanted.changed();
            // A port may get free and an address may come without a word to us.
            let pause = if wanted.is_empty() { FOR_EVER } else { RETRY };
            let next = async { !matches!(timeout(pause, changed).await, Ok(Err(_closed))) };
            // The sender lives in the sync loop, which ends when all does.
            if stop.run_until_cancelled(next).await != Some(true) {
                break;
            }
        }
        self.stop.cancelled().await;
        for (_, server) in std::mem::take(&mut self.open) {
            server.end(FAREWELL).await;
        }
        Ok(())
    }

    /// Closes first, so that a port may go from one Service to another.
    async fn follow(&mut self, wanted: &Wanted) {
        let places = places(wanted);
        let superfluous: Vec<_> = self
            .open
            .keys()
            .filter(|place| !places.contains_key(place))
            .cloned()
            .collect();
        for place in superfluous {
            if let Some(server) = self.open.remove(&place) {
                debug!(service = %place.0.service, port = place.0.port, "Closing a health check");
                server.end(FAREWELL).await;
            }
        }
        self.failed.retain(|place, _| places.contains_key(place));
        for (place, count) in places {
            if let Some(server) = self.open.get(&place) {
                server.count.store(count, Ordering::Relaxed);
            } else {
                self.open(place, count);
            }
        }
    }

    fn open(&mut self, place: (Listener, IpAddr), count: usize) {
        let (Listener { service, port, .. }, addr) = &place;
        let address = SocketAddr::new(*addr, *port);
        let count = Arc::new(AtomicUsize::new(count));
        match Server::start(address, service.clone(), count, self.health.clone()) {
            Ok(server) => {
                info!(%service, %address, "Answering health checks");
                self.failed.remove(&place);
                self.open.insert(place, server);
            }
            Err(error) => {
                let error = error.to_string();
                if self.failed.get(&place) != Some(&error) {
                    warn!(%service, %address, error, "Cannot answer health checks, trying again");
                    let node_name = self.events.node_name();
                    let told = Occurrence::no_health_check(service, node_name, *port, &error);
                    self.events.tell(told);
                    self.failed.insert(place, error);
                }
            }
        }
    }
}

/// Where to listen for what, and what to say there.
fn places(wanted: &Wanted) -> BTreeMap<(Listener, IpAddr), usize> {
    let mut places = BTreeMap::new();
    let mut own = None;
    for (listener, count) in wanted.listeners() {
        let addresses = wanted.addresses(listener.family);
        if addresses.networks.is_none() {
            let any = match listener.family {
                Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            places.insert((listener.clone(), any), count);
            continue;
        }
        let own = own.get_or_insert_with(own_addresses);
        let served = own
            .iter()
            .filter(|addr| Family::of(**addr) == listener.family && addresses.serves(**addr));
        places.extend(served.map(|addr| ((listener.clone(), *addr), count)));
    }
    places
}

/// Those of all interfaces, now.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            warn!(%error, "Cannot list the node's addresses");
            return Vec::new();
        }
    };
    let mut addresses: Vec<IpAddr> = interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| a.ip().into());
            v4.or_else(|| address.as_sockaddr_in6().map(|a| a.ip().into()))
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
