//! One HTTP probe: a fresh connection, one GET, no trust asked for.

use std::sync::Arc;

use http_body_util::Empty;
use hyper::Request as HttpRequest;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

mod trust;

/// What to get.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) get: &'a HTTPGetAction,
    /// The pod's address, unless the probe names a host.
    pub(super) host: &'a str,
    pub(super) port: u16,
}

/// Success is a status from 200 to 399; the error is for people.
pub(super) async fn get(request: Request<'_>) -> Result<(), String> {
    let host = request
        .get
        .host
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(request.host);
    let port = request.port;
    let path = request.get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let is_tls = request.get.scheme.as_deref() == Some("HTTPS");
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let url = format!(
        "{}://{authority}{path}",
        if is_tls { "https" } else { "http" }
    );
    let fail = |error: &dyn std::error::Error| format!("Get \"{url}\": {}", super::chain(error));

    let message = message(request.get, &path, &authority)?;
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| fail(&error))?;
    let status = if is_tls {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| fail(&error))?;
        let config = Arc::new(trust::config());
        let stream = TlsConnector::from(config).connect(name, stream).await;
        exchange(stream.map_err(|error| fail(&error))?, message).await
    } else {
        exchange(stream, message).await
    };
    match status.map_err(|error| fail(&error))? {
        200..=399 => Ok(()),
        status => Err(format!("HTTP probe failed with statuscode: {status}")),
    }
}

async fn exchange<S>(stream: S, message: HttpRequest<Empty<Bytes>>) -> Result<u16, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut response = std::pin::pin!(sender.send_request(message));
    // The head is enough; the body is dropped with the connection.
    let response = tokio::select! {
        biased;
        response = &mut response => response,
        // The answer, or the reason why there is none, is with the request.
        _ended = connection => response.await,
    };
    Ok(response?.status().as_u16())
}

fn message(
    get: &HTTPGetAction,
    path: &str,
    authority: &str,
) -> Result<HttpRequest<Empty<Bytes>>, String> {
    let mut builder = HttpRequest::get(path);
    let headers = builder
        .headers_mut()
        .ok_or_else(|| format!("path {path:?} is not valid"))?;
    let user_agent = concat!("kube-probe/", env!("CARGO_PKG_VERSION"), " seaway");
    headers.insert(USER_AGENT, HeaderValue::from_static(user_agent));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let host = HeaderValue::from_str(authority);
    headers.insert(
        HOST,
        host.map_err(|error| format!("host {authority:?}: {error}"))?,
    );
    for header in get.http_headers.iter().flatten() {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|error| format!("header {:?}: {error}", header.name))?;
        let value = HeaderValue::from_str(&header.value);
        let value = value.map_err(|error| format!("header {:?}: {error}", header.name))?;
        if matches!(name, HOST | USER_AGENT | ACCEPT) {
            headers.insert(name, value);
        } else {
            headers.append(name, value);
        }
    }
    builder
        .body(Empty::new())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
