//! Plain `/healthz`, for supervisors on the machine.

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Answers `ok` while the process lives, until `shutdown`.
pub async fn serve_healthz(listener: TcpListener, shutdown: CancellationToken) {
    let router = Router::new()
        .route("/healthz", get(ok))
        .route("/healthz/ping", get(ok))
        .route("/livez", get(ok));
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned());
    if let Err(error) = served.await {
        warn!(%error, "Serving /healthz ended");
    }
}

pub(super) async fn ok() -> &'static str {
    "ok"
}
