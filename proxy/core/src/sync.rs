//! One round of making the kernel match.

use crate::backend::{Backend, BackendError};
use crate::desired::DesiredState;

/// The outcome of a round that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReport<R> {
    /// Whether the kernel had to be touched.
    pub changed: bool,
    /// What the kernel holds now; the next round's `have`.
    pub rendered: R,
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
    let have = match have {
        Some(have) => have,
        None => backend.read_back().await?,
    };
    let rendered = backend.render(desired);
    let changed = have != rendered;
    if changed {
        backend.apply(&have, &rendered).await?;
    }
    // Also when nothing has changed: an earlier run may have died before this.
    backend.settle(desired).await;
    Ok(SyncReport { changed, rendered })
}

#[cfg(test)]
mod tests;
