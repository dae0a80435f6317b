//! Keeps the runtime's own status current.

use std::sync::Arc;
use std::time::Duration;

use seaway_agent_cri::CriError;
use tracing::{info, warn};

use super::{Shared, chain};
use crate::runtime_status::RuntimeStatus;

/// How often a runtime that is well is asked.
const WELL: Duration = Duration::from_secs(5);
/// How often one that is not is.
const NOT_WELL: Duration = Duration::from_secs(1);

/// Asks for ever.
pub(super) async fn watch_status(shared: Arc<Shared>) {
    loop {
        let status = match ask(&shared).await {
            Ok(status) => status,
            Err(error) => down(shared.runtime.borrow().clone(), &error),
        };
        let delay = if status.all_ready() { WELL } else { NOT_WELL };
        shared.runtime.send_if_modified(|known| {
            if *known == status {
                return false;
            }
            if status.all_ready() {
                info!(runtime = %status.version(), "Runtime is ready");
            } else if known.message != status.message {
                warn!(reason = %status.message, "Runtime is not ready");
            }
            *known = status;
            true
        });
        tokio::time::sleep(delay).await;
    }
}

/// The message is the Node's: `kubectl describe node` shows it beside `Ready`.
fn down(known: RuntimeStatus, error: &CriError) -> RuntimeStatus {
    RuntimeStatus {
        ready: false,
        network_ready: false,
        message: format!("container runtime is down: {}", chain(error)),
        ..known
    }
}

async fn ask(shared: &Shared) -> Result<RuntimeStatus, CriError> {
    let conditions = shared.cri.status().await?;
    let known = shared.runtime.borrow().clone();
    let (runtime_name, runtime_version) = if known.ready && !known.runtime_name.is_empty() {
        (known.runtime_name, known.runtime_version)
    } else {
        // It may have been upgraded while it was away.
        let version = shared.cri.version().await?;
        (version.runtime_name, version.runtime_version)
    };
    let condition = |kind: &str| conditions.iter().find(|c| c.r#type == kind);
    let is_true = |kind: &str| condition(kind).is_some_and(|c| c.status);
    let messages: Vec<String> = ["RuntimeReady", "NetworkReady"]
        .into_iter()
        .filter_map(condition)
        .filter(|c| !c.status)
        .map(|c| {
            format!(
                "{}=false reason:{} message:{}",
                c.r#type, c.reason, c.message
            )
        })
        .collect();
    Ok(RuntimeStatus {
        ready: is_true("RuntimeReady"),
        network_ready: is_true("NetworkReady"),
        message: messages.join(", "),
        runtime_name,
        runtime_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seaway_agent_cri::CriClient;

    #[tokio::test]
    async fn a_runtime_that_is_away_is_told_in_one_line() {
        let client = CriClient::new("unix:///nowhere/containerd.sock").unwrap();
        let error = client.status().await.unwrap_err();
        let status = down(RuntimeStatus::default(), &error);
        assert_eq!(
            status.message,
            "container runtime is down: ask status of the runtime through \
             /nowhere/containerd.sock: Unavailable: No such file or directory (os error 2)"
        );
        assert!(!status.all_ready());
    }
}
