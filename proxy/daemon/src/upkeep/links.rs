//! Pods' links and routes, as the kernel tells of them.
//!
//! A pod that goes normally takes its link along: what is lost with it is nobody's loss.
//! [`Lost`] tells the two apart, and is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

use seaway_netlink::{Event, Groups, IfIndex, Link, Monitor, NetlinkError, RouteProtocol, Socket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

use crate::chain::Chain;
use crate::config::is_pod_interface;

/// What has been lost, as far as it has been heard of.
#[derive(Debug, Default)]
struct Lost {
    /// Pods' links, and whether they were up.
    links: BTreeMap<IfIndex, bool>,
    from: BTreeSet<IfIndex>,
}

impl Lost {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Link(link) if is_pods(link) => {
                let was_up = self.links.insert(link.index, link.up);
                // One that is being made is down, too.
                if was_up == Some(true) && !link.up {
                    self.from.insert(link.index);
                }
            }
            Event::LinkRemoved(link) => {
                self.links.remove(&link.index);
                self.from.remove(&link.index);
            }
            Event::RouteRemoved(route) if route.protocol == RouteProtocol::SEAWAY => {
                let through = route.oif.filter(|index| self.links.contains_key(index));
                self.from.extend(through);
            }
            _ => {}
        }
    }

    /// Notifications were missed: these are the links now.
    fn restart(&mut self, links: Vec<Link>) {
        let pods = links.into_iter().filter(is_pods);
        self.links = pods.map(|link| (link.index, link.up)).collect();
        self.from = self.links.keys().copied().collect();
    }
}

/// As the CNI plugin names the host's ends.
fn is_pods(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth") && is_pod_interface(&link.name)
}

/// For [`AsyncFd`].
#[derive(Debug)]
struct Source(Monitor);

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[derive(Debug, thiserror::Error)]
enum NoNotices {
    #[error("listen to the kernel")]
    Netlink(#[source] NetlinkError),
    #[error("wait for the kernel")]
    Wait(#[source] std::io::Error),
}

/// Losses of pods that live; none while the kernel cannot be listened to.
#[derive(Debug, Default)]
pub(super) struct Losses {
    source: Option<AsyncFd<Source>>,
    lost: Lost,
    /// Whether the present trouble has been told.
    told: bool,
}

impl Losses {
    /// In the calling thread's network namespace.
    pub(super) fn open() -> Self {
        let mut losses = Self::default();
        losses.listen();
        // The first repair comes anyway.
        losses.lost.from.clear();
        losses
    }

    /// Opens it again if it broke. Every pod may have lost something meanwhile.
    pub(super) fn listen(&mut self) {
        if self.source.is_some() {
            return;
        }
        match open() {
            Ok(source) => {
                self.source = Some(source);
                self.restart();
                self.told = self.source.is_none();
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Waits for one. It may turn out to be that of a pod that goes: see [`Self::clear`].
    pub(super) async fn next(&mut self) {
        while self.lost.from.is_empty() {
            let Some(source) = &mut self.source else {
                return std::future::pending().await;
            };
            match source.readable_mut().await {
                // All of it is taken.
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => self.failed(&NoNotices::Wait(error)),
            }
            self.take();
        }
    }

    /// Takes what has come by now; tells whether a pod that is still there lost something.
    pub(super) fn clear(&mut self) -> bool {
        self.take();
        !std::mem::take(&mut self.lost.from).is_empty()
    }

    fn take(&mut self) {
        while let Some(source) = &mut self.source {
            match source.get_mut().0.wait(Duration::ZERO) {
                Ok(None) => return,
                Ok(Some(Event::Overrun)) => self.restart(),
                Ok(Some(event)) => self.lost.hear(&event),
                Err(error) => self.failed(&NoNotices::Netlink(error)),
            }
        }
    }

    fn restart(&mut self) {
        match Socket::open().and_then(|mut socket| socket.links()) {
            Ok(links) => self.lost.restart(links),
            Err(error) => self.failed(&NoNotices::Netlink(error)),
        }
    }

    fn failed(&mut self, error: &NoNotices) {
        self.source = None;
        if !std::mem::replace(&mut self.told, true) {
            warn!(error = %Chain(error), "Cannot listen to pods' links, repairing now and then");
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor wants unsafe; the monitor opens one descriptor and keeps it"
)]
fn open() -> Result<AsyncFd<Source>, NoNotices> {
    let groups = Groups {
        links: true,
        routes: true,
        ..Groups::default()
    };
    let monitor = Monitor::open(groups).map_err(NoNotices::Netlink)?;
    AsyncFd::with_interest(Source(monitor), Interest::READABLE).map_err(NoNotices::Wait)
}

#[cfg(test)]
mod tests {
    use seaway_netlink::Route;

    use super::*;

    fn link(name: &str, up: bool) -> Link {
        Link {
            index: IfIndex(7),
            name: name.into(),
            alias: None,
            mac: None,
            mtu: 1500,
            qdisc: None,
            up,
            carrier: up,
            operational: up,
            group: 0,
            kind: Some("veth".into()),
            peer: None,
            peer_netns: None,
        }
    }

    fn route(protocol: RouteProtocol) -> Route {
        let mut route = Route::to("10.244.0.2/32".parse().expect("it is one"));
        route.oif = Some(IfIndex(7));
        route.protocol = protocol;
        route
    }

    fn lost(events: &[Event]) -> bool {
        let mut lost = Lost::default();
        for event in events {
            lost.hear(event);
        }
        !lost.from.is_empty()
    }

    #[test]
    fn only_what_pods_that_stay_have_lost_counts() {
        let name = "sw0123456789ab";
        let [up, down] = [true, false].map(|up| Event::Link(link(name, up)));
        let gone = Event::LinkRemoved(link(name, false));
        let ours = Event::RouteRemoved(route(RouteProtocol::SEAWAY));
        let theirs = Event::RouteRemoved(route(RouteProtocol::BOOT));
        let made = [down.clone(), up.clone()];
        let then = |more: &[&Event]| {
            let more = more.iter().map(|event| (*event).clone());
            lost(&made.iter().cloned().chain(more).collect::<Vec<_>>())
        };
        assert!(!then(&[]), "a new pod");
        assert!(!then(&[&down, &ours, &gone]), "a pod goes");
        assert!(!then(&[&theirs]));
        assert!(then(&[&ours]));
        assert!(then(&[&down]));
        assert!(then(&[&down, &up]));
        assert!(!lost(&[ours]), "through somebody else's link");
        assert!(!lost(
            &[true, false].map(|up| Event::Link(link("veth0", up)))
        ));
    }

    #[tokio::test]
    async fn what_has_failed_is_listened_to_again_from_the_next_look_on() {
        let mut losses = Losses::open();
        for _ in 0..2 {
            assert!(losses.source.is_some() && !losses.told);
            losses.failed(&NoNotices::Wait(std::io::ErrorKind::Interrupted.into()));
            assert!(losses.source.is_none() && losses.told);
            losses.listen();
        }
    }
}
