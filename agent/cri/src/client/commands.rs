//! Commands in running containers.

use super::CriClient;
use super::QUERY;
use crate::CriError;
use crate::v1::{ExecRequest, ExecSyncRequest, ExecSyncResponse};
use std::time::Duration;

/// Added to timeouts that the runtime itself enforces.
const SLACK: Duration = Duration::from_secs(15);

/// Which streams an interactive command gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecStreams {
    /// Terminal; standard error then arrives on standard output.
    pub tty: bool,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl CriClient {
    /// Runs a command in a container and waits for it, at most `timeout`.
    pub async fn exec_sync(
        &self,
        id: &str,
        cmd: Vec<String>,
        timeout: Duration,
    ) -> Result<ExecSyncResponse, CriError> {
        let seconds = i64::try_from(timeout.as_secs().max(1)).unwrap_or(i64::MAX);
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd,
            timeout: seconds,
        };
        let limit = timeout.saturating_add(SLACK);
        let mut runtime = self.runtime.clone();
        let call = runtime.exec_sync(request);
        self.call("run command in container", id, limit, call).await
    }

    /// Prepares a command with streams; the URL that serves them.
    pub async fn exec(
        &self,
        id: &str,
        cmd: Vec<String>,
        streams: ExecStreams,
    ) -> Result<String, CriError> {
        let request = ExecRequest {
            container_id: id.to_owned(),
            cmd,
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut runtime = self.runtime.clone();
        let call = runtime.exec(request);
        Ok(self
            .call("prepare command in container", id, QUERY, call)
            .await?
            .url)
    }
}
