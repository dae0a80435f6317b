//! Gives every pod its worker.

mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use seaway_agent_core::admission::{self, Demand};
use seaway_agent_core::spec;
use seaway_agent_core::state::Rejection;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::relist::{self, Traces};
use super::worker::{Desired, Worker};
use super::{PodManager, Shared, chain, runtime};

/// The pods of this node, as the source shows them.
pub type PodStream = BoxStream<'static, Result<Event<Pod>, watcher::Error>>;

/// Exits that wait for the manager's loop, which never blocks; what does not fit is
/// found by the next list.
const EXIT_QUEUE: usize = 256;

/// How soon a worker that broke off is replaced: what broke it may still be there.
const REPLACE_WORKER: Duration = Duration::from_secs(10);

/// The pods cannot be looked after any more.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// The stream of pods is over.
    #[error("the source of pods ended")]
    SourceEnded,
}

impl PodManager {
    /// Runs the pods that `pods` brings until `shutdown`. Containers keep running.
    pub async fn run(self, pods: PodStream, shutdown: CancellationToken) -> Result<(), PodsError> {
        let (exits, mut exited) = mpsc::channel(EXIT_QUEUE);
        let traces = watch::Sender::new(None);
        let mut traced = traces.subscribe();
        let has_events = watch::Sender::new(false);
        // Dropped, and so ended, with this function.
        let mut background = JoinSet::new();
        background.spawn(runtime::watch_status(Arc::clone(&self.shared)));
        let events = has_events.subscribe();
        background.spawn(relist::relist(Arc::clone(&self.shared), traces, events));
        background.spawn(relist::follow_events(
            Arc::clone(&self.shared),
            exits,
            has_events,
        ));

        let mut manager = Manager::new(self.shared);
        let mut pods = pods.fuse();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                event = pods.next() => match event {
                    Some(Ok(event)) => manager.source_event(event),
                    Some(Err(error)) => warn!(error = %chain(&error), "Pods cannot be watched"),
                    None => return Err(PodsError::SourceEnded),
                },
                Some(uid) = exited.recv() => manager.wake(&uid),
                Ok(()) = traced.changed() => {
                    let now = traced.borrow_and_update().clone();
                    manager.runtime_changed(now.unwrap_or_default());
                }
                Some(ended) = manager.workers.join_next() => match ended {
                    Ok((uid, true)) => manager.worker_ended(&uid),
                    Ok((uid, false)) => manager.replace_worker(uid),
                    Err(error) => warn!(%error, "Pod worker broke off"),
                },
            }
        }
    }
}

/// The way to one worker.
struct Handle {
    desired: watch::Sender<Desired>,
    wake: Arc<Notify>,
    demand: Demand,
    rejected: Option<Rejection>,
    /// The source has the pod again, whose end has begun and cannot be taken back.
    next: Option<Pod>,
}

struct Manager {
    shared: Arc<Shared>,
    /// UID, and whether the worker came to its end.
    workers: JoinSet<(String, bool)>,
    handles: BTreeMap<String, Handle>,
    /// Pods that have ended here while the source still shows them (finalizers).
    finished: BTreeSet<String>,
    traces: Traces,
    /// UIDs of the list that is coming in.
    listing: Option<BTreeSet<String>>,
    /// The source has shown everything once: what it does not show is an orphan.
    synced: bool,
    /// So has the runtime.
    traced: bool,
}

impl Manager {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            workers: JoinSet::new(),
            handles: BTreeMap::new(),
            finished: BTreeSet::new(),
            traces: Traces::new(),
            listing: None,
            synced: false,
            traced: false,
        }
    }

    fn source_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listing = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(spec::uid(&pod).to_owned());
                }
                self.apply(pod);
            }
            Event::InitDone => self.list_done(),
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => {
                self.finished.remove(spec::uid(&pod));
                self.gone(spec::uid(&pod), Some(&pod));
            }
        }
    }

    fn apply(&mut self, pod: Pod) {
        let uid = spec::uid(&pod).to_owned();
        if uid.is_empty() {
            warn!(pod = %spec::key(&pod), "Pod without UID left out");
            return;
        }
        if let Some(handle) = self.handles.get_mut(&uid) {
            handle.next = None;
            if handle.is_ending() && !spec::is_deleted(&pod) {
                handle.next = Some(pod);
            } else {
                let desired = Desired { pod, gone: false };
                handle.desired.send_replace(desired);
            }
            return;
        }
        if self.finished.contains(&uid) {
            return;
        }
        let rejection = self.admit(&pod).err();
        info!(pod = %spec::key(&pod), uid, rejected = rejection.is_some(), "Pod accepted");
        self.spawn(Desired { pod, gone: false }, rejection);
    }

    /// Pods that run already, or ran here before, are not judged again.
    fn admit(&self, pod: &Pod) -> Result<(), Rejection> {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let is_known = !matches!(phase, None | Some("" | "Pending"))
            || self.traces.contains_key(spec::uid(pod))
            || spec::is_deleted(pod);
        if is_known {
            return Ok(());
        }
        let others: Vec<Demand> = self
            .handles
            .values()
            .filter(|h| h.holds_resources())
            .map(|h| h.demand.clone())
            .collect();
        admission::admit(pod, self.shared.objects.node().as_ref(), &others)
    }

    fn spawn(&mut self, desired: Desired, rejected: Option<Rejection>) {
        let uid = spec::uid(&desired.pod).to_owned();
        let demand = admission::demand(&desired.pod);
        let handle = Handle {
            desired: watch::Sender::new(desired),
            wake: Arc::default(),
            demand,
            rejected,
            next: None,
        };
        self.start_worker(&uid, &handle, Duration::ZERO);
        self.handles.insert(uid, handle);
    }

    fn start_worker(&mut self, uid: &str, handle: &Handle, delay: Duration) {
        let worker = Worker::new(
            Arc::clone(&self.shared),
            handle.desired.subscribe(),
            Arc::clone(&handle.wake),
            handle.rejected.clone(),
        );
        let uid = uid.to_owned();
        self.workers.spawn(async move {
            tokio::time::sleep(delay).await;
            let ended = AssertUnwindSafe(Box::pin(worker.run()))
                .catch_unwind()
                .await;
            (uid, ended.is_ok())
        });
    }

    /// The pod is looked after by a new worker, who begins with what there is.
    fn replace_worker(&mut self, uid: String) {
        let Some(handle) = self.handles.remove(&uid) else {
            return;
        };
        error!(pod = %spec::key(&handle.desired.borrow().pod), uid, "Pod worker broke off");
        self.start_worker(&uid, &handle, REPLACE_WORKER);
        self.handles.insert(uid, handle);
    }

    /// The source has the object no more; `last` is how it looked at its end.
    fn gone(&mut self, uid: &str, last: Option<&Pod>) {
        if let Some(handle) = self.handles.get_mut(uid) {
            handle.next = None;
            handle.desired.send_modify(|desired| {
                desired.gone = true;
                if let Some(last) = last {
                    desired.pod = last.clone();
                }
            });
        }
    }

    fn list_done(&mut self) {
        let Some(listing) = self.listing.take() else {
            return;
        };
        let lost: Vec<String> = self
            .handles
            .keys()
            .filter(|uid| !listing.contains(*uid))
            .cloned()
            .collect();
        for uid in lost {
            self.gone(&uid, None);
        }
        self.finished.retain(|uid| listing.contains(uid));
        self.synced = true;
        self.adopt_orphans();
    }

    fn wake(&self, uid: &str) {
        if let Some(handle) = self.handles.get(uid) {
            handle.wake.notify_one();
        }
    }

    fn runtime_changed(&mut self, now: Traces) {
        self.traced = true;
        let before = std::mem::replace(&mut self.traces, now);
        let uids: BTreeSet<&String> = before.keys().chain(self.traces.keys()).collect();
        for uid in uids {
            if before.get(uid) != self.traces.get(uid) {
                self.wake(uid);
            }
        }
        self.adopt_orphans();
    }

    fn worker_ended(&mut self, uid: &str) {
        let Some(handle) = self.handles.remove(uid) else {
            return;
        };
        let desired = handle.desired.borrow();
        info!(pod = %spec::key(&desired.pod), uid, "Pod ended");
        if let Some(pod) = handle.next {
            self.apply(pod);
        } else if !desired.gone {
            self.finished.insert(uid.to_owned());
        }
    }
}

impl Handle {
    fn is_ending(&self) -> bool {
        let desired = self.desired.borrow();
        desired.gone || spec::is_deleted(&desired.pod)
    }

    fn holds_resources(&self) -> bool {
        let desired = self.desired.borrow();
        let phase = desired
            .pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        self.rejected.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
    }
}

#[cfg(test)]
mod tests;
