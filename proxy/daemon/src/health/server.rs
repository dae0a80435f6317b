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
use crate::events::{Events, Occurrence};
use crate::metrics::Metrics;

/// kube-proxy's pause before it tries to listen again.
const LISTEN_RETRY: Duration = Duration::from_secs(5);
/// How long an event has to reach the API server before the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
    hard_fail: Option<HardFail>,
) -> std::io::Result<()> {
    let listening = async {
        match hard_fail {
            None => Ok(listen(addr).await),
            Some(hard_fail) => hard_fail.listen(addr).await,
        }
    };
    let Some(listener) = stop.run_until_cancelled(listening).await else {
        return Ok(());
    };
    let listener = listener?;
    info!(address = %addr, "Listening");
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// A taken address is the end, if the operator wants that; then an event says so.
#[derive(Clone, Debug)]
pub(crate) struct HardFail {
    /// What is served.
    pub(crate) name: &'static str,
    pub(crate) events: Events,
}

impl HardFail {
    async fn listen(self, addr: SocketAddr) -> std::io::Result<TcpListener> {
        let Self { name, events } = self;
        let listened = TcpListener::bind(addr).await;
        if let Err(error) = &listened {
            let (node, addr) = (events.node_name(), addr.to_string());
            let occurrence = Occurrence::no_server(node, name, &addr, &error.to_string());
            events.tell(occurrence);
            // It would be lost with the end of everything.
            tokio::time::sleep(LAST_WORDS).await;
        }
        listened.map_err(|error| std::io::Error::new(error.kind(), CannotListen { addr, error }))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("listen on {addr}")]
struct CannotListen {
    addr: SocketAddr,
    #[source]
    error: std::io::Error,
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
