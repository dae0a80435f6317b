//! The two small HTTP servers.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Health, Report};
use crate::events::{Events, Occurrence, Served};
use crate::metrics::Metrics;

#[cfg(test)]
mod tests;

/// kube-proxy's pause before it tries to listen again.
const LISTEN_RETRY: Duration = Duration::from_secs(5);
/// How long an event has to reach the API server before the end. Those of the start come first.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long whoever has begun to ask has to go on, and to take the answer, at the end. One who
/// sends half a request would keep the whole daemon from ending.
const FAREWELL: Duration = Duration::from_secs(1);
/// What tokio's `TcpListener::bind` asks for.
const BACKLOG: u32 = 1024;

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
    let stopped = stop.clone().cancelled_owned();
    let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        served = serving.into_future() => served,
        () = late => Ok(()),
    }
}

/// A taken address is the end, if the operator wants that; then an event says so.
#[derive(Clone, Debug)]
pub(crate) struct HardFail {
    pub(crate) served: Served,
    pub(crate) events: Events,
}

impl HardFail {
    async fn listen(self, addr: SocketAddr) -> std::io::Result<TcpListener> {
        let Self { served, events } = self;
        let listened = bind(addr).await;
        if let Err(error) = &listened {
            let (node, addr) = (events.node_name(), addr.to_string());
            let occurrence = Occurrence::no_server(node, served, &addr, &error.to_string());
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
        match bind(addr).await {
            Ok(listener) => return listener,
            Err(error) => warn!(address = %addr, %error, "Cannot listen, trying again"),
        }
        tokio::time::sleep(LISTEN_RETRY).await;
    }
}

/// "Any address" means those of both families, as Go's `net.Listen` has it for kube-proxy: kubelet
/// probes the pod's own address, whichever family that has.
async fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    if !addr.ip().is_unspecified() {
        return TcpListener::bind(addr).await;
    }
    match bind_both(addr.port()) {
        Err(error) if addr.is_ipv4() && lacks_ipv6(&error) => TcpListener::bind(addr).await,
        bound => bound,
    }
}

/// One socket for both, whatever `net.ipv6.bindv6only` says.
fn bind_both(port: u16) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    setsockopt(&socket, Ipv6V6Only, &false)?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv6Addr::UNSPECIFIED, port).into())?;
    socket.listen(BACKLOG)
}

/// Whether this kernel has IPv4 alone. A taken address is something else.
pub(super) fn lacks_ipv6(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}
