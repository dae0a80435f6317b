//! Asks the daemon.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Request, SOCKET, require_root};

/// A round that writes everything, and reading it back, may come first.
const PATIENCE: Duration = Duration::from_secs(90);

/// The daemon's answer; none if no daemon runs.
///
/// # Errors
/// This is not root; the daemon does not answer, or cannot say.
pub(super) async fn ask<T: DeserializeOwned>(
    run_dir: &Path,
    request: &Request,
) -> anyhow::Result<Option<T>> {
    require_root()?;
    let path = run_dir.join(SOCKET);
    let about = || format!("ask the daemon at {}", path.display());
    let stream = match UnixStream::connect(&path).await {
        Ok(stream) => stream,
        Err(error) if is_dead(&error) => return Ok(None),
        Err(error) => return Err(error).with_context(about),
    };
    let text = match timeout(PATIENCE, exchange(stream, request)).await {
        Ok(text) => text.with_context(about)?,
        Err(_elapsed) => {
            return Err(anyhow!("no answer within {} s", PATIENCE.as_secs())).with_context(about);
        }
    };
    let answer: Result<T, String> = serde_json::from_str(&text)
        .with_context(|| format!("read the answer of {}", path.display()))?;
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(why) => Err(anyhow!(why)).context("the daemon cannot say"),
    }
}

fn is_dead(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

async fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<String> {
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}
