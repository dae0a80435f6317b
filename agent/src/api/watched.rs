//! Watches and what is kept of them.

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher;
use kube::{Api, Resource};
use seaway_proxy::lasting_watch;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::outage::Outage;
use super::{Reflector, Watch};

/// A watch that pauses longer and longer after failures, and says so.
pub(super) fn watch<K>(api: Api<K>, config: watcher::Config) -> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    logged(lasting_watch(api, config))
}

/// A watch that says when it fails, and when it goes on.
pub(super) fn logged<K>(events: Watch<K>) -> Watch<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    let mut outage = Outage::new(K::kind(&()).into_owned());
    events
        .inspect(move |event| match event {
            // Asking for a list is no answer yet.
            Ok(watcher::Event::Init) => {}
            Ok(_) => outage.is_over(),
            Err(error) => outage.goes_on(error),
        })
        .boxed()
}

/// Everything that `events` shows, always current.
pub(super) fn store<K>(events: Watch<K>) -> (Store<K>, Reflector)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let stream = reflector::reflector(writer, events);
    (
        store,
        stream.for_each(|_event| std::future::ready(())).boxed(),
    )
}

/// Tells when this node's object has been seen with what it can allocate.
#[derive(Clone, Debug)]
pub(super) struct NodeKnown(watch::Receiver<bool>);

impl NodeKnown {
    /// Returns when it has, and never takes it back. An object that was only just
    /// registered says nothing yet: its first status comes a moment later.
    pub(super) async fn wait(mut self) {
        // A dropped writer means shutdown.
        drop(self.0.wait_for(|known| *known).await);
    }
}

/// This node's object, always current.
pub(super) fn own_node(events: Watch<Node>) -> (Store<Node>, NodeKnown, Reflector) {
    let (store, writer) = reflector::store();
    let stream = reflector::reflector(writer, events);
    let known = watch::Sender::new(false);
    let told = NodeKnown(known.subscribe());
    let seen = store.clone();
    let task = stream.for_each(move |_event| {
        if !*known.borrow() && seen.state().iter().any(|node| has_allocatable(node)) {
            known.send_replace(true);
        }
        std::future::ready(())
    });
    (store, told, task.boxed())
}

fn has_allocatable(node: &Node) -> bool {
    let status = node.status.as_ref();
    status.is_some_and(|s| s.allocatable.as_ref().is_some_and(|a| !a.is_empty()))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn node(status: &serde_json::Value) -> Node {
        let node = json!({"metadata": {"name": "n"}, "status": status});
        serde_json::from_value(node).unwrap()
    }

    /// Whether pods may be admitted after these events.
    async fn is_known(events: Vec<Event<Node>>) -> bool {
        let events = stream::iter(events.into_iter().map(Ok));
        // Goes on for ever, as a watch does.
        let (_store, known, mut task) = own_node(events.chain(stream::pending()).boxed());
        assert!(futures::poll!(&mut task).is_pending());
        known.wait().now_or_never().is_some()
    }

    #[tokio::test]
    async fn admission_waits_until_the_node_says_what_it_has() {
        let registered = node(&json!({}));
        let reported = node(&json!({"allocatable": {"cpu": "2"}}));
        assert!(!is_known(vec![]).await);
        // Listed, and not there yet.
        let listed = vec![Event::Init, Event::InitDone];
        assert!(!is_known(listed.clone()).await);
        let mut made = listed;
        made.push(Event::Apply(registered.clone()));
        assert!(!is_known(made.clone()).await);
        made.push(Event::Apply(reported.clone()));
        assert!(is_known(made.clone()).await);
        // The first status of a node that was deleted says nothing of the next one,
        // but pods run here by then.
        made.push(Event::Delete(reported.clone()));
        made.push(Event::Apply(registered));
        assert!(is_known(made).await);
        let restarted = vec![Event::Init, Event::InitApply(reported), Event::InitDone];
        assert!(is_known(restarted).await);
    }
}
