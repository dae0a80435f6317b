//! What a kernel data plane must be able to do.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use crate::desired::{DesiredState, Family};
use crate::explain::kernel::{self, Inspection, Subject};
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
    family: Option<Family>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// `what` is the operation, then the object, in lower case, without a full stop.
    pub fn new(what: impl Into<String>, retry: Retry) -> Self {
        Self {
            what: what.into(),
            retry,
            family: None,
            source: None,
        }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says that everything was done in the other family.
    #[must_use]
    pub fn only_in(mut self, family: Option<Family>) -> Self {
        self.family = family;
        self
    }

    /// The family that this is about, if the other one is as desired.
    pub fn family(&self) -> Option<Family> {
        self.family
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

/// Rules of one table, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// Whose table.
    pub family: Family,
    /// Its name.
    pub table: &'static str,
    /// All of ours that are in it.
    pub total: usize,
    /// Those of them that the last change has written.
    pub written: usize,
}

/// What was done about what the kernel remembers, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whose flows.
    pub family: Family,
    /// How long it took, whether it went well or not.
    pub took: Duration,
    /// Flows that were ended.
    pub removed: usize,
}

/// A kernel data plane. `render` is pure; the rest is I/O and idempotent.
///
/// A crash between any two steps of [`apply`](Backend::apply) must leave a
/// working node: what is referred to is written first, deletions come last.
pub trait Backend: Send {
    /// What this backend programs. `Display` is the golden-test format: sorted,
    /// one line per kernel object.
    type Rendered: Clone + Eq + Hash + fmt::Display + Send + Sync;

    /// Short name for logs and metrics: `ebpf`, `iptables`.
    fn name(&self) -> &'static str;

    /// Which of several programs does the work, where it matters.
    fn variant(&self) -> Option<String> {
        None
    }

    /// What it serves on this node.
    fn families(&self) -> &'static [Family] {
        &[Family::V4]
    }

    /// Counts the rules of `want`, given that `have` was there before. Nothing for a
    /// backend that has none.
    fn count(&self, _have: &Self::Rendered, _want: &Self::Rendered) -> Vec<RuleCount> {
        Vec::new()
    }

    /// The kernel objects that mean `desired`.
    fn render(&self, desired: &DesiredState) -> Self::Rendered;

    /// The same for somebody who [applies](Self::apply) it: it need not say in full what
    /// `have` has just so.
    fn render_beside(&self, _have: &Self::Rendered, desired: &DesiredState) -> Self::Rendered {
        self.render(desired)
    }

    /// What has to be kept of what the kernel holds, for the next round's `have`.
    fn remember(&self, rendered: Self::Rendered) -> Self::Rendered {
        rendered
    }

    /// What of `desired` this backend does not program, or not as it should be.
    /// Nothing, unless said otherwise.
    fn unsupported(&self, _desired: &DesiredState) -> Vec<Skipped> {
        Vec::new()
    }

    /// What of `have` and `want` concerns one address, and where they differ. Unless
    /// said otherwise: the lines that name it.
    fn inspect(
        &self,
        have: &Self::Rendered,
        want: &Self::Rendered,
        subject: &Subject,
    ) -> Inspection {
        kernel::by_lines(&have.to_string(), &want.to_string(), subject)
    }

    /// From now on [`disturbed`](Self::disturbed) has something to say; what was done
    /// before is covered by the read-back that follows.
    fn attend(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns when somebody else may have changed what is ours, within seconds, and
    /// without reading it. Stays so until [`attend`](Self::attend). Never returns
    /// where that cannot be noticed. The future may be dropped and asked for again.
    fn disturbed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Whether that is noticed, so that reading back is needed seldom.
    fn is_watched(&self) -> bool {
        false
    }

    /// What of ours the kernel holds now, in the same terms as `render`, at least as far as
    /// is needed to see what differs.
    fn read_back(&mut self) -> impl Future<Output = Result<Self::Rendered, BackendError>> + Send;

    /// The same in full, to be shown to somebody.
    fn read_in_full(
        &mut self,
    ) -> impl Future<Output = Result<Self::Rendered, BackendError>> + Send {
        self.read_back()
    }

    /// Before [`apply`](Self::apply): notes what a later run must know of `desired` if this one
    /// dies in between. Nothing, unless said otherwise.
    fn prepare(&mut self, _desired: &DesiredState) {}

    /// Makes the kernel go from `have` to `want`.
    fn apply(
        &mut self,
        have: &Self::Rendered,
        want: &Self::Rendered,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Ends what the kernel remembers of earlier rules and `desired` no longer means, in the
    /// families whose rules are as desired, `written`; the rules of the others would have it
    /// remembered again. A failure is reported by the backend and made up for in a later round;
    /// new connections do not depend on it.
    fn settle(
        &mut self,
        _desired: &DesiredState,
        _written: &[Family],
    ) -> impl Future<Output = Vec<Settled>> + Send {
        std::future::ready(Vec::new())
    }

    /// Removes everything of ours, adopted leftovers of earlier runs included.
    fn remove_all(&mut self) -> impl Future<Output = Result<(), BackendError>> + Send;
}
