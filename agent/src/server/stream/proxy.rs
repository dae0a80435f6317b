//! Passes one request with an upgrade on to another server.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{HOST, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use tracing::debug;

/// The request could not be passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForwardError {
    /// The runtime gave something else than a URL.
    #[error("read streaming URL {url}")]
    Url {
        /// What it gave.
        url: String,
        /// Why not.
        #[source]
        source: axum::http::uri::InvalidUri,
    },
    /// The URL has no host and port.
    #[error("streaming URL {0} has no address")]
    NoAddress(Uri),
    /// Its streaming server does not answer.
    #[error("connect to streaming server {address}")]
    Connect {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It does not speak HTTP.
    #[error("pass a request on to streaming server {address}")]
    Http {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: hyper::Error,
    },
}

/// Sends `request` with its headers to `url`. When that switches protocols, so does the
/// caller's connection, and a task of `tasks` copies both ways until both ends are done.
pub(super) async fn forward(
    mut request: Request,
    url: &str,
    tasks: &TaskTracker,
) -> Result<Response, ForwardError> {
    let uri: Uri = url.parse().map_err(|source| ForwardError::Url {
        url: url.to_owned(),
        source,
    })?;
    let address = address(&uri)?;
    let caller = hyper::upgrade::on(&mut request);
    let mut answer = send(request, &uri, &address, tasks).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut answer);
        tasks.spawn(copy_both_ways(caller, server));
    }
    Ok(answer.map(Body::new))
}

fn address(uri: &Uri) -> Result<String, ForwardError> {
    let authority = uri
        .authority()
        .ok_or_else(|| ForwardError::NoAddress(uri.clone()))?;
    Ok(format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(80)
    ))
}

async fn send(
    request: Request,
    uri: &Uri,
    address: &str,
    tasks: &TaskTracker,
) -> Result<hyper::Response<hyper::body::Incoming>, ForwardError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|source| ForwardError::Connect {
            address: address.to_owned(),
            source,
        })?;
    let failed = |source| ForwardError::Http {
        address: address.to_owned(),
        source,
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    tasks.spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(%error, "Connection to streaming server ended");
        }
    });
    let (mut parts, body) = request.into_parts();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().expect("a path of a URI is a URI");
    if let Ok(host) = HeaderValue::from_str(address) {
        parts.headers.insert(HOST, host);
    }
    sender
        .send_request(Request::from_parts(parts, body))
        .await
        .map_err(failed)
}

async fn copy_both_ways(caller: OnUpgrade, server: OnUpgrade) {
    let (caller, server) = match tokio::try_join!(caller, server) {
        Ok(both) => both,
        Err(error) => return debug!(%error, "Upgrade failed"),
    };
    let (mut caller, mut server) = (TokioIo::new(caller), TokioIo::new(server));
    // How a stream ends (a process exits, a user goes away) is no news.
    match tokio::io::copy_bidirectional(&mut caller, &mut server).await {
        Ok((sent, received)) => debug!(sent, received, "Stream ended"),
        Err(error) => debug!(%error, "Stream was cut"),
    }
}
