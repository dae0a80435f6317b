//! One round of making the kernel match.

use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::backend::{Backend, BackendError, RuleCount, Settled};
use crate::desired::{DesiredState, Family};

/// The outcome of a round that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReport<R> {
    /// Whether the kernel had to be touched.
    pub changed: bool,
    /// What is in the kernel now, if that has changed; nothing for some backends.
    pub counts: Vec<RuleCount>,
    /// What the kernel holds now; the next round's `have`.
    pub rendered: R,
    /// If the kernel was read back, the [`fingerprint`] of what it held.
    pub found: Option<u64>,
    /// What was done about what the kernel remembers.
    pub settled: Vec<Settled>,
}

/// The outcome of a round that failed. The kernel's state is unknown then.
#[derive(Debug)]
pub struct SyncError {
    /// What has failed.
    pub error: BackendError,
    /// Whether the kernel was known to need a change. Not if it could not even be read.
    pub wanted_change: bool,
    /// What was done in the family that is as desired about what the kernel remembers.
    pub settled: Vec<Settled>,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for SyncError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// A number by which to tell later whether something is still as it was.
pub fn fingerprint<R: Hash>(rendered: &R) -> u64 {
    let mut hasher = DefaultHasher::new();
    rendered.hash(&mut hasher);
    hasher.finish()
}

/// Makes the kernel mean `desired`.
///
/// `have` is what the kernel held after the last round. `None` makes the round
/// read it back: the first one, one after a failure, and every now and then one
/// that looks for drift.
///
/// # Errors
/// The next round must have `have: None`.
pub async fn sync_once<B: Backend>(
    backend: &mut B,
    have: Option<B::Rendered>,
    desired: &DesiredState,
) -> Result<SyncReport<B::Rendered>, SyncError> {
    let (have, found) = if let Some(have) = have {
        (have, None)
    } else {
        backend.attend().await;
        let read = backend.read_back().await.map_err(unread)?;
        let found = fingerprint(&read);
        (read, Some(found))
    };
    let rendered = backend.render_beside(&have, desired);
    let changed = have != rendered;
    let mut counts = Vec::new();
    if changed {
        backend.prepare(desired);
        if let Err(error) = backend.apply(&have, &rendered).await {
            return Err(unwritten(backend, desired, error).await);
        }
        counts = backend.count(&have, &rendered);
    }
    drop(have);
    let rendered = backend.remember(rendered);
    // Also when nothing has changed: an earlier run may have died before this.
    let settled = backend.settle(desired, backend.families()).await;
    Ok(SyncReport {
        changed,
        counts,
        rendered,
        found,
        settled,
    })
}

fn unread(error: BackendError) -> SyncError {
    SyncError {
        error,
        wanted_change: false,
        settled: Vec::new(),
    }
}

/// If the other family is as it should be, it must not wait for the one that is not.
async fn unwritten<B: Backend>(
    backend: &mut B,
    desired: &DesiredState,
    error: BackendError,
) -> SyncError {
    let families = backend.families().iter().copied();
    let written = |family: &Family| error.family().is_some_and(|failed| failed != *family);
    let written: Vec<Family> = families.filter(written).collect();
    SyncError {
        settled: backend.settle(desired, &written).await,
        error,
        wanted_change: true,
    }
}

#[cfg(test)]
mod tests;
