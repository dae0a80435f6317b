//! The state, shared by the directory's follower and the pod workers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;
use tracing::error;

use super::persist::Store;
use super::state::{Snapshot, State};
use super::warnings::Warnings;
use super::watch::Snapshots;

/// One state, changed under a lock, and published after each change.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    store: Store,
    warnings: Warnings,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
}

impl Shared {
    pub(super) fn new(state: State, store: Store) -> Self {
        Self {
            state: Mutex::new(state),
            store,
            warnings: Warnings::default(),
            snapshots: watch::Sender::new(None),
        }
    }

    /// Takes in the whole directory: from now on what follows from the state is published.
    /// Before, nobody can tell what is not wanted from what has not been read.
    pub(super) fn take_directory(&self, change: impl FnOnce(&mut State)) {
        self.update(change, true);
    }

    /// Changes the state; once the directory has been read, recomputes what follows and
    /// publishes it.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.update(change, false);
    }

    fn update(&self, change: impl FnOnce(&mut State), has_read: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if !has_read && self.snapshots.borrow().is_none() {
            return;
        }
        let (snapshot, refusals) = state.reconcile(Timestamp::now());
        for refusal in refusals {
            if refusal.has_valid_version {
                error!(problem = %refusal, "Invalid manifest, its last valid version goes on");
            } else {
                error!(problem = %refusal, "Invalid manifest, nothing of it runs");
            }
        }
        if let Some(kept) = state.unsaved() {
            self.store.keep_state(kept);
        }
        self.warnings.retain(|uid| snapshot.pods.contains_key(uid));
        // Still under the lock: snapshots come in the order of the changes.
        self.snapshots.send_replace(Some(Arc::new(snapshot)));
    }

    pub(super) fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// Looks at the state.
    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest; empty before the directory has been read.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone().unwrap_or_default()
    }

    /// All from now on.
    pub(super) fn subscribe(&self) -> Snapshots {
        self.snapshots.subscribe()
    }
}
