//! The API server's client, without a need for what it does not use.

use std::time::Duration;

use axum::http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

mod patience;
mod token;

use patience::Patience;
use token::TokenFile;

/// A watch may be silent for minutes. When this node's own address has changed, nothing will
/// ever come of it, and the new address is among what it should have said. So the kernel asks
/// whether the other side is there, after this long without a word,
const SILENCE: Duration = Duration::from_secs(5);
/// again after each of these,
const ASK_AGAIN: Duration = Duration::from_secs(3);
/// and gives the connection up after so many unanswered questions: 14 s in all.
const UNANSWERED: u32 = 3;
/// The same for what was sent and is not acknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(14);

/// A client as [`Client::try_from`] makes it, except that dead connections are noticed within
/// seconds, that a busy server is told to the caller after seconds, that a new token in its file
/// counts at once, and that the system's CA certificates are loaded only when they are what the
/// server is to be verified by.
///
/// A node, or an image with nothing but our program in it, may have none of them; and kube
/// fails without them even when the server speaks plain HTTP.
///
/// # Errors
/// Those of kube: a client certificate, a CA or a token that cannot be used.
pub fn api_client(mut config: Config) -> Result<Client, kube::Error> {
    if config.root_cert.is_none() && !verifies_servers(&config) {
        config.root_cert = Some(Vec::new());
    }
    if config.proxy_url.is_some() {
        // The connection is then one to the proxy, which kube knows how to talk to.
        config.default_retry = false;
        return Client::try_from(config);
    }
    let token = TokenFile::of(&mut config)?;
    let sign =
        |token: TokenFile| MapRequestLayer::new(move |request: Request<Body>| token.sign(request));
    let https = config.rustls_https_connector_with_connector(connector())?;
    let mut https = TimeoutConnector::new(https);
    https.set_connect_timeout(config.connect_timeout);
    https.set_read_timeout(config.read_timeout);
    https.set_write_timeout(config.write_timeout);
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(https);
    let retry = || RetryLayer::new(Patience::new());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(retry))
        .option_layer(config.auth_layer()?)
        .option_layer(token.map(sign))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // TLS is on top of it.
    connector.enforce_http(false);
    connector.set_keepalive(Some(SILENCE));
    connector.set_keepalive_interval(Some(ASK_AGAIN));
    connector.set_keepalive_retries(Some(UNANSWERED));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}

fn verifies_servers(config: &Config) -> bool {
    config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_certificates_are_for_servers_that_are_verified() {
        for (url, insecure, want) in [
            ("http://127.0.0.1:8001", false, false),
            ("https://127.0.0.1:6443", true, false),
            ("https://127.0.0.1:6443", false, true),
        ] {
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = insecure;
            assert_eq!(verifies_servers(&config), want, "{url} {insecure}");
        }
    }
}
