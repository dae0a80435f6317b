//! The API server's client, without a need for what it does not use.

use std::time::Duration;

use axum::http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

mod certificate;
mod measured;
mod patience;
mod token;

use crate::metrics::ApiRequests;
use certificate::Renewed;
use measured::{By, Tries, Whole};
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
/// Something in between may acknowledge for a server that has died, and a server may be stuck.
/// So a request that nothing comes for is given up after this long, within an answer, too. A
/// server that works ends watches ([`WATCH`](crate::sources::WATCH)) and requests (60 s) before.
const NO_ANSWER: Duration = crate::sources::WATCH.saturating_add(Duration::from_secs(10));

/// A client as [`Client::try_from`] makes it, except that dead connections are noticed within
/// seconds, that a busy server is told to the caller after seconds, that a new token or client
/// certificate in its file counts at once, and that the system's CA certificates are loaded only
/// when they are what the server is to be verified by.
///
/// A node, or an image with nothing but our program in it, may have none of them; and kube
/// fails without them even when the server speaks plain HTTP.
///
/// # Errors
/// Those of kube: a client certificate, a CA or a token that cannot be used.
pub fn api_client(config: Config) -> Result<Client, kube::Error> {
    measured_client(config).map(|measured| measured.client)
}

/// A client, and what is measured of its requests.
pub(crate) struct MeasuredClient {
    pub(crate) client: Client,
    pub(crate) requests: ApiRequests,
}

/// The same, for who wants to know how it fares.
pub(crate) fn measured_client(mut config: Config) -> Result<MeasuredClient, kube::Error> {
    if config.root_cert.is_none() && !verifies_servers(&config) {
        config.root_cert = Some(Vec::new());
    }
    config.read_timeout = config.read_timeout.or(Some(NO_ANSWER));
    // A connection that was idle has not kept anybody waiting.
    config.reset_reader_on_write = true;
    let requests = ApiRequests::default();
    let server = requests.to(&measured::host(&config.cluster_url));
    if config.proxy_url.is_some() {
        // The connection is then one to the proxy, which kube knows how to talk to.
        config.default_retry = false;
        let client = ClientBuilder::try_from(config)?
            .with_layer(&By(Tries(server.clone())))
            .with_layer(&By(Whole(server)))
            .build();
        return Ok(MeasuredClient { client, requests });
    }
    let token = TokenFile::of(&mut config)?;
    let sign =
        |token: TokenFile| MapRequestLayer::new(move |request: Request<Body>| token.sign(request));
    let http = Renewed::new(&config, http_client)?;
    let retry = || RetryLayer::new(Patience::new());
    let service = ServiceBuilder::new()
        .layer(By(Whole(server.clone())))
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(retry))
        .option_layer(config.auth_layer()?)
        .option_layer(token.map(sign))
        .layer(config.extra_headers_layer()?)
        .layer(By(Tries(server)))
        .map_err(BoxError::from)
        .service(http);
    let client = Client::new(service, config.default_namespace);
    Ok(MeasuredClient { client, requests })
}

/// With the client certificate that is there now.
fn http_client(
    config: &Config,
) -> Result<HttpClient<impl Connect + Clone + Send + Sync + 'static + use<>, Body>, kube::Error> {
    let https = config.rustls_https_connector_with_connector(connector())?;
    let mut https = TimeoutConnector::new(https);
    https.set_connect_timeout(config.connect_timeout);
    https.set_read_timeout(config.read_timeout);
    https.set_reset_reader_on_write(config.reset_reader_on_write);
    https.set_write_timeout(config.write_timeout);
    Ok(HttpClient::builder(TokioExecutor::new()).build(https))
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
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// As a server behind a balancer that ends connections itself, and keeps them up.
    #[tokio::test]
    async fn a_server_that_takes_requests_and_says_nothing_is_given_up() {
        for head in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let (mut connection, _) = listener.accept().await.unwrap();
                    connection.write_all(head.as_bytes()).await.unwrap();
                    taken.push(connection);
                }
            });
            let mut config = Config::new(format!("http://{address}/").parse().unwrap());
            config.read_timeout = Some(Duration::from_millis(100));
            let client = api_client(config).unwrap();
            let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(client);
            let params = kube::api::ListParams::default();
            let asked = tokio::time::timeout(Duration::from_secs(20), nodes.list(&params)).await;
            asked.unwrap().unwrap_err();
            server.abort();
        }
        assert!(
            NO_ANSWER > crate::sources::WATCH + Duration::from_secs(5),
            "the watch says it"
        );
    }

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
