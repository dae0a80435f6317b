//! One port on one address, with kube-proxy's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use seaway_proxy_core::ObjectKey;
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::health::Health;

/// As std's `TcpListener::bind` has it.
const BACKLOG: u32 = 128;
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    /// Endpoints to tell of.
    pub(super) count: Arc<AtomicUsize>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    service: ServiceName,
    local_endpoints: usize,
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct ServiceName {
    namespace: String,
    name: String,
}

impl Server {
    /// Listens at once; any method and any path is answered.
    pub(super) fn start(
        address: SocketAddr,
        service: ObjectKey,
        count: Arc<AtomicUsize>,
        health: Arc<Health>,
    ) -> std::io::Result<Self> {
        let listener = listen(address)?;
        let counted = count.clone();
        let answer = move || {
            let healthy = health.services_healthy(Instant::now());
            std::future::ready(answer(&service, counted.load(Ordering::Relaxed), healthy))
        };
        let router = Router::new().fallback(answer);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
            if let Err(error) = serving.await {
                warn!(%address, %error, "Health checks ended");
            }
        });
        Ok(Self { count, stop, task })
    }

    /// Closes the port at once, and what is open there within `patience`.
    pub(super) async fn end(mut self, patience: Duration) {
        self.stop.cancel();
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        let socket = TcpSocket::new_v6()?;
        // The other family has a server of its own.
        setsockopt(&socket, Ipv6V6Only, &true)?;
        socket
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn answer(service: &ObjectKey, count: usize, healthy: bool) -> Response {
    let code = if count > 0 && healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = Body {
        service: ServiceName {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
        },
        local_endpoints: count,
        service_proxy_healthy: healthy,
    };
    let headers = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (WEIGHT, count.to_string()),
    ];
    (code, headers, Json(body)).into_response()
}
