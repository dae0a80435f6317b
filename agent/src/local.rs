//! What a running agent tells `seaway-agent get`, on a unix socket in its run directory.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Name of the socket in the run directory.
const SOCKET: &str = "agent.sock";

/// All that a node knows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// Its pods, with their status.
    pub pods: Vec<Pod>,
    /// The Services it knows.
    pub services: Vec<Service>,
    /// Their endpoints, where they are computed here.
    pub endpoint_slices: Option<Vec<EndpointSlice>>,
    /// Manifests whose newest version is not in force.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

/// A manifest whose newest version is not in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The file's name in the directory.
    pub file: String,
    /// Object, field and what is wrong there, in one line.
    pub problem: String,
    /// An earlier version goes on.
    pub has_valid_version: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

/// Whoever knows it.
pub trait LocalSource: Send + Sync + 'static {
    /// Everything as it is now.
    fn listing(&self) -> Listing;
}

/// The socket cannot be served or asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It cannot be made.
    #[error("listen on {path}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("no agent answers on {path} (is it running, and is this its --run-dir?)")]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The conversation failed.
    #[error("ask the agent on {path}")]
    Request {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: hyper::Error,
    },
    /// The answer is from another version.
    #[error("read the answer of the agent on {path}")]
    Answer {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// Makes the socket, in place of one that an earlier run has left.
pub fn listen(run_dir: &Path) -> Result<UnixListener, LocalError> {
    let path = run_dir.join(SOCKET);
    let make = || {
        std::fs::create_dir_all(run_dir)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // Pods may hold secrets in their environment.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    make().map_err(|source| LocalError::Listen {
        path: path.clone(),
        source,
    })
}

/// Answers until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    source: Arc<dyn LocalSource>,
    shutdown: CancellationToken,
) {
    let router = Router::new().route("/listing", get(async move || Json(source.listing())));
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned());
    if let Err(error) = served.await {
        warn!(%error, "Serving the local socket ended");
    }
}

/// Asks the agent of `run_dir`.
///
/// # Panics
/// Never: the request is a constant.
pub async fn ask(run_dir: &Path) -> Result<Listing, LocalError> {
    let path = run_dir.join(SOCKET);
    let stream = UnixStream::connect(&path)
        .await
        .map_err(|source| LocalError::Connect {
            path: path.clone(),
            source,
        })?;
    let failed = |source| LocalError::Request {
        path: path.clone(),
        source,
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let request = hyper::Request::get("/listing")
        .header(hyper::header::HOST, "agent")
        .body(Empty::<Bytes>::new())
        .expect("a constant request is well formed");
    let answer = async {
        let answer = sender.send_request(request).await?;
        answer.into_body().collect().await
    };
    let body = tokio::select! {
        body = answer => body.map_err(failed)?,
        Err(error) = connection => return Err(failed(error)),
    };
    serde_json::from_slice(&body.to_bytes()).map_err(|source| LocalError::Answer { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl LocalSource for Fixed {
        fn listing(&self) -> Listing {
            Listing {
                services: vec![Service::default()],
                ..Listing::default()
            }
        }
    }

    #[tokio::test]
    async fn what_is_known_is_told_and_a_stale_socket_is_replaced() {
        let run_dir = tempfile::tempdir().unwrap();
        drop(listen(run_dir.path()).unwrap());
        let listener = listen(run_dir.path()).unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, Arc::new(Fixed), shutdown.clone()));
        assert_eq!(ask(run_dir.path()).await.unwrap().services.len(), 1);
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn without_an_agent_the_socket_is_named() {
        let run_dir = tempfile::tempdir().unwrap();
        let error = ask(run_dir.path()).await.unwrap_err().to_string();
        assert!(
            error.contains("agent.sock") && error.contains("is it running"),
            "{error}"
        );
    }
}
