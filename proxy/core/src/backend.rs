//! What a kernel data plane must be able to do.

use std::error::Error;
use std::fmt;
use std::future::Future;

use crate::desired::DesiredState;
use crate::skipped::Skipped;

/// When it makes sense to try a failed step again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once: somebody else held a lock or a dump was interrupted.
    Now,
    /// Later, with growing pauses.
    Backoff,
    /// Never with this configuration; an operator must act.
    Never,
}

/// A data plane could not do what was asked of it.
///
/// Display says what failed on which object; [`Error::source`] says why.
#[derive(Debug)]
pub struct BackendError {
    what: String,
    retry: Retry,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// `what` is the operation, then the object, in lower case, without a full stop.
    pub fn new(what: impl Into<String>, retry: Retry) -> Self {
        Self {
            what: what.into(),
            retry,
            source: None,
        }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the sync loop should do next.
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

/// A kernel data plane. `render` is pure; the rest is I/O and idempotent.
///
/// A crash between any two steps of [`apply`](Backend::apply) must leave a
/// working node: what is referred to is written first, deletions come last.
pub trait Backend: Send {
    /// What this backend programs. `Display` is the golden-test format: sorted,
    /// one line per kernel object.
    type Rendered: Clone + Eq + fmt::Display + Send + Sync;

    /// Short name for logs and metrics: `ebpf`, `iptables`.
    fn name(&self) -> &'static str;

    /// The kernel objects that mean `desired`.
    fn render(&self, desired: &DesiredState) -> Self::Rendered;

    /// What of `desired` this backend does not program, or not as it should be.
    /// Nothing, unless said otherwise.
    fn unsupported(&self, _desired: &DesiredState) -> Vec<Skipped> {
        Vec::new()
    }

    /// What of ours the kernel holds now, in the same terms as `render`.
    fn read_back(&mut self) -> impl Future<Output = Result<Self::Rendered, BackendError>> + Send;

    /// Makes the kernel go from `have` to `want`.
    fn apply(
        &mut self,
        have: &Self::Rendered,
        want: &Self::Rendered,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// After a round that went well: ends what the kernel remembers of earlier
    /// rules and `desired` no longer means. A failure is reported by the backend
    /// and made up for in a later round; new connections do not depend on it.
    fn settle(&mut self, _desired: &DesiredState) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Removes everything of ours, adopted leftovers of earlier runs included.
    fn remove_all(&mut self) -> impl Future<Output = Result<(), BackendError>> + Send;
}
