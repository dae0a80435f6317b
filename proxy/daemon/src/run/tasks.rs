//! Long-running tasks, and what it means when one ends.

use std::future::Future;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

/// How long a running apply may take to finish at the end; below Kubernetes'
/// default grace period of 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// Long-running tasks, of which none may end before the whole does.
pub(super) struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
    stop: CancellationToken,
}

impl Tasks {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            stop,
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

    /// Waits for the first task to end, then lets the others finish what they are at.
    pub(super) async fn supervise(mut self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        if let Some(first) = self.set.join_next().await {
            outcome = self.judge(first);
        }
        self.stop.cancel();
        let rest = async {
            while let Some(next) = self.set.join_next().await {
                debug!(?next, "Task ended");
            }
        };
        timeout(GRACE, rest)
            .await
            .context("finish what was being written to the kernel")?;
        outcome
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
