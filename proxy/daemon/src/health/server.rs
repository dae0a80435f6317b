//! The two small HTTP servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Health, Report};
use crate::metrics::Metrics;

/// kube-proxy's pause before it tries to listen again.
const LISTEN_RETRY: Duration = Duration::from_secs(5);

/// `/healthz` and `/livez`; everything else is 404.
pub(crate) fn router(health: Arc<Health>, metrics: Metrics) -> Router {
    let (livez_health, livez_metrics) = (health.clone(), metrics.clone());
    let healthz = move || {
        let (ok, report) = health.healthz(Instant::now());
        metrics.healthz_answered(code(ok).as_u16());
        std::future::ready(answer(ok, report))
    };
    let livez = move || {
        let (ok, report) = livez_health.livez(Instant::now());
        livez_metrics.livez_answered(code(ok).as_u16());
        std::future::ready(answer(ok, report))
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/livez", get(livez))
}

fn code(ok: bool) -> StatusCode {
    if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

fn answer(ok: bool, report: Report) -> Response {
    (
        code(ok),
        [(X_CONTENT_TYPE_OPTIONS, "nosniff")],
        Json(report),
    )
        .into_response()
}

/// Serves `router` at `addr` until `stop`, for as long as it takes to get the address.
///
/// A taken address is no reason to leave the node without a data plane.
pub(crate) async fn serve(
    addr: SocketAddr,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let Some(listener) = stop.run_until_cancelled(listen(addr)).await else {
        return Ok(());
    };
    info!(address = %addr, "Listening");
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn listen(addr: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(error) => warn!(address = %addr, %error, "Cannot listen, trying again"),
        }
        tokio::time::sleep(LISTEN_RETRY).await;
    }
}
