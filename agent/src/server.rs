//! The kubelet's HTTPS API: what the API server calls for `kubectl logs` and `exec`.
//!
//! ```text
//! TCP ─► tls (client certificate required) ─► authorize ─► routes ─► logs | streams
//! ```
//!
//! Every caller shows a certificate that the client CA has signed. Tokens and anonymous
//! callers are not taken. Streams (exec) are not understood here: the runtime has a
//! streaming server, and bytes are passed on both ways.

pub mod authorize;
mod healthz;
mod identity;
mod log_request;
mod pod_access;
mod refusal;
mod routes;
mod stream;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

pub use healthz::serve_healthz;
pub use identity::Identity;
pub use log_request::log_path;
pub use pod_access::{PodAccess, StreamError, Streams};
pub use routes::{AppState, router};

/// A handshake that takes longer is somebody who does not want one.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}{}", hint(source))]
pub struct ListenError {
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    #[source]
    pub source: std::io::Error,
}

/// The one case that people meet.
fn hint(source: &std::io::Error) -> &'static str {
    if source.kind() == std::io::ErrorKind::AddrInUse {
        " (another agent, or kubelet, probably runs on this machine)"
    } else {
        ""
    }
}

/// Takes the port.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError { address, source })
}

/// Serves until `shutdown`; connections that are open then are closed.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    state: AppState,
    shutdown: CancellationToken,
) {
    let tasks = state.tasks.clone();
    let router = router(state);
    if let Ok(address) = listener.local_addr() {
        info!(%address, "Serving HTTPS");
    }
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "Could not accept a connection");
                    // Most likely out of descriptors: some have to be given back first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => return,
        };
        let connection = connection(stream, peer, tls.clone(), router.clone());
        let shutdown = shutdown.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = connection => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, tls: TlsAcceptor, router: Router) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%peer, %error, "TLS handshake failed"),
        Err(_elapsed) => return debug!(%peer, "TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let identity = match Identity::from_certificates(certificates) {
        Ok(identity) => Arc::new(identity),
        Err(error) => return warn!(%peer, %error, "Client certificate names nobody"),
    };
    let service = TowerToHyperService::new(router.layer(Extension(identity)));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%peer, %error, "Connection ended");
    }
}

/// Tasks that outlive the request that began them: connections and upgraded streams.
pub fn task_tracker() -> TaskTracker {
    TaskTracker::new()
}

#[cfg(test)]
mod tests;
