//! The state, shared by the directory's follower and the pod workers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;
use tracing::error;

use super::state::{Snapshot, State};
use super::watch::Snapshots;

/// One state, changed under a lock, and published after each change.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            snapshots: watch::Sender::new(None),
        }
    }

    /// Changes the state, recomputes what follows and publishes it.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let (snapshot, problems) = state.reconcile(Timestamp::now());
        for problem in problems {
            error!(%problem, "Invalid manifest");
        }
        // Still under the lock: snapshots come in the order of the changes.
        self.snapshots.send_replace(Some(Arc::new(snapshot)));
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
