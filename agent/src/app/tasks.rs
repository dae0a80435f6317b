//! The tree of tasks: named, joined, and ended together.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long tasks have to end after a signal; less than systemd's and a pod's patience.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Tasks that all have to run for the agent to be of use.
pub(super) struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
    /// Cancelled when the agent is told to stop, or one of the tasks has ended.
    pub(super) shutdown: CancellationToken,
    terminate: Signal,
    interrupt: Signal,
}

impl Tasks {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            set: JoinSet::new(),
            shutdown: CancellationToken::new(),
            terminate: signal(SignalKind::terminate()).context("take SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("take SIGINT")?,
        })
    }

    /// Adds a task that ends only at shutdown.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_fallible(name, async move {
            task.await;
            Ok(())
        });
    }

    /// Adds a task whose failure is the agent's.
    pub(super) fn add_fallible(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.set.spawn(async move { (name, task.await) });
    }

    /// Runs until a signal, or until a task ends that should not.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let result = tokio::select! {
            _ = self.terminate.recv() => {
                info!("Stopping on SIGTERM, pods and kernel state stay");
                Ok(())
            }
            _ = self.interrupt.recv() => {
                info!("Stopping on SIGINT, pods and kernel state stay");
                Ok(())
            }
            ended = self.set.join_next() => match ended {
                Some(Ok((name, Ok(())))) => Err(anyhow!("{name} has ended")),
                Some(Ok((name, Err(error)))) => Err(error.context(name)),
                Some(Err(error)) => Err(anyhow!(error).context("a task has ended")),
                None => Err(anyhow!("there is nothing to do")),
            },
        };
        self.shutdown.cancel();
        self.wind_down().await;
        result
    }

    async fn wind_down(&mut self) {
        let all = async {
            while let Some(ended) = self.set.join_next().await {
                if let Ok((name, Err(error))) = ended {
                    error!(
                        task = name,
                        error = format!("{error:#}"),
                        "Failed while stopping"
                    );
                }
            }
        };
        tokio::select! {
            () = all => {}
            () = tokio::time::sleep(PATIENCE) => warn!("Some tasks did not stop in time"),
            _ = self.terminate.recv() => warn!("Stopping at once"),
            _ = self.interrupt.recv() => warn!("Stopping at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_ends_the_others_and_is_named() {
        let mut tasks = Tasks::new().unwrap();
        let stopped = tasks.shutdown.clone();
        tasks.add("waiting", stopped.cancelled_owned());
        tasks.add_fallible("broken", async { Err(anyhow!("no more")) });
        let shutdown = tasks.shutdown.clone();
        let error = tasks.run().await.unwrap_err();
        assert_eq!(format!("{error:#}"), "broken: no more");
        assert!(shutdown.is_cancelled());
    }

    #[tokio::test]
    async fn an_unexpected_end_is_an_error() {
        let mut tasks = Tasks::new().unwrap();
        tasks.add("short", async {});
        assert_eq!(
            tasks.run().await.unwrap_err().to_string(),
            "short has ended"
        );
    }
}
