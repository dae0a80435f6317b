//! One round of making the kernel match.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::backend::{Backend, BackendError, RuleCount, Settled};
use crate::desired::DesiredState;

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
/// The kernel's state is then unknown: the next round must have `have: None`.
pub async fn sync_once<B: Backend>(
    backend: &mut B,
    have: Option<B::Rendered>,
    desired: &DesiredState,
) -> Result<SyncReport<B::Rendered>, BackendError> {
    let (have, found) = if let Some(have) = have {
        (have, None)
    } else {
        backend.attend().await;
        let read = backend.read_back().await?;
        let found = fingerprint(&read);
        (read, Some(found))
    };
    let rendered = backend.render_beside(&have, desired);
    let changed = have != rendered;
    let mut counts = Vec::new();
    if changed {
        if let Err(error) = backend.apply(&have, &rendered).await {
            if error.family().is_some() {
                // The other family is as it should be, and must not wait for this one.
                backend.settle(desired).await;
            }
            return Err(error);
        }
        counts = backend.count(&have, &rendered);
    }
    drop(have);
    let rendered = backend.remember(rendered);
    // Also when nothing has changed: an earlier run may have died before this.
    let settled = backend.settle(desired).await;
    Ok(SyncReport {
        changed,
        counts,
        rendered,
        found,
        settled,
    })
}

#[cfg(test)]
mod tests;
