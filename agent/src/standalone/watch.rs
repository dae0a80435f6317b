//! Snapshots as the streams of events that consumers of an API server know.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;

use super::state::{Objects, Snapshot};

/// The latest snapshot; nothing until the directory has been read once.
pub(super) type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

/// The events of one kind of objects.
pub(super) type Events<K> = BoxStream<'static, watcher::Result<Event<K>>>;

/// Begins with the whole list, then tells differences. It ends when the snapshots do.
pub(super) fn events<K>(snapshots: Snapshots, select: fn(&Snapshot) -> &Objects<K>) -> Events<K>
where
    K: Clone + Send + Sync + 'static,
{
    let first = (snapshots, None::<Objects<K>>);
    stream::unfold(first, move |(mut snapshots, known)| async move {
        let snapshot = if known.is_none() {
            snapshots.wait_for(Option::is_some).await.ok()?.clone()
        } else {
            snapshots.changed().await.ok()?;
            snapshots.borrow_and_update().clone()
        };
        let now = select(snapshot.as_deref()?).clone();
        let events = match &known {
            None => initial(&now),
            Some(before) => differences(before, &now),
        };
        Some((
            stream::iter(events.into_iter().map(Ok)),
            (snapshots, Some(now)),
        ))
    })
    .flatten()
    .boxed()
}

fn initial<K: Clone>(now: &Objects<K>) -> Vec<Event<K>> {
    let objects = now
        .values()
        .map(|object| Event::InitApply(K::clone(object)));
    [Event::Init]
        .into_iter()
        .chain(objects)
        .chain([Event::InitDone])
        .collect()
}

fn differences<K: Clone>(before: &Objects<K>, now: &Objects<K>) -> Vec<Event<K>> {
    let gone = before
        .iter()
        .filter(|(key, _object)| !now.contains_key(*key));
    let gone = gone.map(|(_key, object)| Event::Delete(K::clone(object)));
    let changed = now.iter().filter(|(key, object)| {
        before
            .get(*key)
            .is_none_or(|known| !Arc::ptr_eq(known, object))
    });
    let changed = changed.map(|(_key, object)| Event::Apply(K::clone(object)));
    gone.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn snapshot(names: &[(&str, &Arc<ConfigMap>)]) -> Arc<Snapshot> {
        let config_maps = names
            .iter()
            .map(|(name, map)| ((*name).to_owned(), Arc::clone(map)));
        Arc::new(Snapshot {
            config_maps: config_maps.collect(),
            ..Snapshot::default()
        })
    }

    fn named(name: &str) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        Arc::new(map)
    }

    async fn next(events: &mut Events<ConfigMap>) -> String {
        let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
        match events.next().await.unwrap().unwrap() {
            Event::Init => "init".to_owned(),
            Event::InitApply(map) => format!("init {}", name(map)),
            Event::InitDone => "done".to_owned(),
            Event::Apply(map) => format!("apply {}", name(map)),
            Event::Delete(map) => format!("delete {}", name(map)),
        }
    }

    #[tokio::test]
    async fn the_list_first_and_then_differences() {
        let (a, b, changed) = (named("a"), named("b"), named("b2"));
        let (sender, receiver) = watch::channel(None);
        let mut events = events(receiver, |snapshot| &snapshot.config_maps);
        assert!(
            futures::poll!(events.next()).is_pending(),
            "nothing before the first read"
        );
        sender.send_replace(Some(snapshot(&[("a", &a), ("b", &b)])));
        for want in ["init", "init a", "init b", "done"] {
            assert_eq!(next(&mut events).await, want);
        }
        assert!(
            futures::poll!(events.next()).is_pending(),
            "the list comes once"
        );
        sender.send_replace(Some(snapshot(&[("b", &changed)])));
        assert_eq!(next(&mut events).await, "delete a");
        assert_eq!(next(&mut events).await, "apply b2");
        drop(sender);
        assert!(events.next().await.is_none());
    }
}
