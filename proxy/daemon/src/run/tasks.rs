//! Long-running tasks, and what it means when one ends.

use std::future::Future;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use crate::chain::Chain;

/// How long a running apply may take to finish at the end; below Kubernetes'
/// default grace period of 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// Long-running tasks, of which none may end before the whole does.
pub(super) struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
    stop: CancellationToken,
    /// How long the others may take when one has ended.
    grace: Duration,
}

impl Tasks {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            stop,
            grace: GRACE,
        }
    }

    pub(super) fn spawn<E>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<anyhow::Error>,
    {
        let task = async move { (name, task.await.map_err(Into::into)) };
        self.set.spawn(task.instrument(info_span!("task", name)));
    }

    /// Waits for the first task to end, then lets the others finish what they are at. Why the
    /// first one has ended says more than that another one does not.
    pub(super) async fn supervise(mut self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        if let Some(first) = self.set.join_next().await {
            outcome = self.judge(first);
        }
        self.stop.cancel();
        let grace = self.grace;
        let rest = async {
            while let Some(next) = self.set.join_next().await {
                debug!(?next, "Task ended");
            }
        };
        let finished = timeout(grace, rest)
            .await
            .context("finish what was being written to the kernel");
        if let (Err(_), Err(error)) = (&outcome, &finished) {
            warn!(error = %Chain(error.as_ref()), "Not all tasks have ended");
        }
        outcome.and(finished)
    }

    fn judge(
        &self,
        ended: Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>,
    ) -> anyhow::Result<()> {
        let (name, result) = ended.context("a task panicked")?;
        result.with_context(|| format!("task {name} failed"))?;
        anyhow::ensure!(self.stop.is_cancelled(), "task {name} ended unexpectedly");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use anyhow::anyhow;

    use super::*;

    /// With one that heeds nothing.
    fn tasks() -> Tasks {
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.grace = Duration::from_millis(10);
        tasks.spawn("stuck", pending::<anyhow::Result<()>>());
        tasks
    }

    #[tokio::test]
    async fn why_all_ends_is_told_even_if_something_does_not_end() {
        let mut tasks = tasks();
        let broken: anyhow::Result<()> = Err(anyhow!("the stream ended"));
        tasks.spawn("nodes", ready(broken));
        let error = tasks.supervise().await.unwrap_err();
        assert_eq!(format!("{error:#}"), "task nodes failed: the stream ended");
    }

    #[tokio::test]
    async fn what_does_not_end_when_it_should_is_an_error() {
        let mut tasks = tasks();
        tasks.stop.cancel();
        tasks.spawn("nodes", ready(anyhow::Ok(())));
        let error = tasks.supervise().await.unwrap_err();
        assert!(error.to_string().starts_with("finish what"), "{error:#}");
    }
}
