//! Whether a plugin works on this node.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// It takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);
/// Every runtime that we serve can speak this version of CNI.
const SPOKEN: &str = "1.0.0";

/// The plugin does not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// Not a program, or one for another machine.
    #[error("start the CNI plugin {}", plugin.display())]
    Start {
        /// Which.
        plugin: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It hangs.
    #[error("the CNI plugin {} does not answer VERSION within {} s", plugin.display(), PATIENCE.as_secs())]
    Timeout {
        /// Which.
        plugin: PathBuf,
    },
    /// It is another program, or a broken one.
    #[error("the CNI plugin {} answers VERSION with {status}, {answer:?}", plugin.display())]
    Answer {
        /// Which.
        plugin: PathBuf,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it wrote.
        answer: String,
    },
}

/// Calls `program` as a runtime does that wants to know its versions. Errors name it `plugin`.
pub(crate) async fn ask_version(program: &Path, plugin: &Path) -> Result<(), ProbeError> {
    let plugin = plugin.to_owned();
    let mut command = Command::new(program);
    command.env_clear().env("CNI_COMMAND", "VERSION");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) => return Err(ProbeError::Start { plugin, source }),
        Err(_late) => return Err(ProbeError::Timeout { plugin }),
    };
    if output.status.success() && speaks(&output.stdout) {
        return Ok(());
    }
    Err(ProbeError::Answer {
        plugin,
        status: output.status,
        answer: String::from_utf8_lossy(&output.stdout)
            .chars()
            .take(200)
            .collect(),
    })
}

/// CNI specification 1.1.0, section 2, "VERSION".
fn speaks(answer: &[u8]) -> bool {
    let answer: Option<Value> = serde_json::from_slice(answer).ok();
    let versions = answer
        .as_ref()
        .and_then(|a| a["supportedVersions"].as_array());
    versions.is_some_and(|versions| versions.iter().any(|version| version == SPOKEN))
}
