//! The whole server with real certificates, over loopback.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use axum::http::{Method, StatusCode};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::authorize::{Access, Authorizer};
use super::tls::ServingCertificate;
use super::*;

/// An authority that signs clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn client(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, "clients");
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (
            certificate.der().clone(),
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
    }
}

/// Lets in everybody but `mallory`.
struct NotMallory;

impl Authorizer for NotMallory {
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        _access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, kube::Error>> {
        let known = who.groups == ["clients"];
        std::future::ready(Ok(known && who.user != "mallory")).boxed()
    }
}

struct FixedPods {
    pods: Vec<Arc<Pod>>,
    stream_url: String,
}

impl PodAccess for FixedPods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.clone()
    }

    fn exec_url(
        &self,
        container_id: String,
        command: Vec<String>,
        _streams: Streams,
    ) -> BoxFuture<'_, Result<String, StreamError>> {
        assert_eq!(
            (container_id.as_str(), command.as_slice()),
            ("abc", &["cat".to_owned()][..])
        );
        std::future::ready(Ok(self.stream_url.clone())).boxed()
    }
}

fn pods() -> Vec<Arc<Pod>> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}, {"name": "late"}]},
        "status": {"containerStatuses": [
            {
                "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 1,
                "containerID": "containerd://abc", "state": {"running": {}},
            },
            {
                "name": "late", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff"}},
            },
        ]},
    });
    vec![Arc::new(serde_json::from_value(pod).unwrap())]
}

struct Server {
    address: SocketAddr,
    authority: Authority,
    logs: tempfile::TempDir,
    shutdown: CancellationToken,
}

impl Server {
    async fn start(stream_url: &str) -> Self {
        let authority = Authority::new();
        let logs = tempfile::tempdir().unwrap();
        let ca = logs.path().join("ca.crt");
        std::fs::write(&ca, authority.0.pem()).unwrap();
        let serving = ServingCertificate::self_signed("n1", &[Ipv4Addr::LOCALHOST.into()]);
        let acceptor = tls::acceptor(serving.unwrap(), &ca).unwrap();
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = AppState {
            pods: Arc::new(FixedPods {
                pods: pods(),
                stream_url: stream_url.to_owned(),
            }),
            authorizer: Arc::new(NotMallory),
            pod_log_dir: logs.path().to_owned(),
            tasks: task_tracker(),
        };
        let shutdown = CancellationToken::new();
        tokio::spawn(serve(listener, acceptor, state, shutdown.clone()));
        Self {
            address,
            authority,
            logs,
            shutdown,
        }
    }

    fn log_file(&self) -> PathBuf {
        let path = self.logs.path().join("shop_web_u1/app/1.log");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Fails with the first I/O error, which a refused handshake is.
    async fn request(
        &self,
        authority: Option<&Authority>,
        name: &str,
        request: hyper::Request<Empty<bytes::Bytes>>,
    ) -> Result<hyper::Response<Incoming>, Box<dyn std::error::Error>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
        let config = match authority {
            Some(authority) => {
                let (certificate, key) = authority.client(name);
                config.with_client_auth_cert(vec![certificate], key)?
            }
            None => config.with_no_client_auth(),
        };
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("n1")?;
        let stream = connector.connect(name, stream).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender.send_request(request).await?)
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = hyper::Request::get(path).body(Empty::new()).unwrap();
        let response = self
            .request(Some(&self.authority), "alice", request)
            .await
            .unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The API server, too, takes any certificate unless told otherwise.
#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn healthz() -> hyper::Request<Empty<bytes::Bytes>> {
    hyper::Request::get("/healthz").body(Empty::new()).unwrap()
}

#[tokio::test]
async fn only_clients_of_the_authority_are_let_in() {
    let server = Server::start("").await;
    let ours = server
        .request(Some(&server.authority), "alice", healthz())
        .await
        .unwrap();
    assert_eq!(ours.status(), StatusCode::OK);
    let none = server.request(None, "", healthz()).await.unwrap_err();
    let none = crate::api::error::Chain(none.as_ref()).to_string();
    assert!(none.contains("CertificateRequired"), "{none}");
    let other = Authority::new();
    let wrong = server.request(Some(&other), "alice", healthz()).await;
    assert!(wrong.is_err(), "signed by another authority");
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let server = Server::start("").await;
    let request = hyper::Request::get("/pods").body(Empty::new()).unwrap();
    let refused = server
        .request(Some(&server.authority), "mallory", request)
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("user=mallory, verb=get"), "{text}");
}

#[tokio::test]
async fn pods_are_a_list() {
    let server = Server::start("").await;
    let (status, body) = server.get("/pods").await;
    assert_eq!(status, StatusCode::OK);
    let list: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
}

#[tokio::test]
async fn logs_are_read_from_the_runtimes_file() {
    let server = Server::start("").await;
    let text = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n";
    std::fs::write(server.log_file(), text).unwrap();
    let logs = "/containerLogs/shop/web/app";
    assert_eq!(
        server.get(logs).await,
        (StatusCode::OK, "one\ntwo\n".to_owned())
    );
    let tail = server
        .get(&format!("{logs}?tailLines=1&timestamps=true"))
        .await
        .1;
    assert_eq!(tail, "2026-01-01T00:00:02.000000000Z two\n");
}

#[tokio::test]
async fn following_streams_before_the_end() {
    let server = Server::start("").await;
    std::fs::write(server.log_file(), "").unwrap();
    let request = hyper::Request::get("/containerLogs/shop/web/app?follow=true");
    let request = request.body(Empty::new()).unwrap();
    // Headers come although there is nothing to say yet.
    let mut response = server
        .request(Some(&server.authority), "alice", request)
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    std::fs::write(server.log_file(), "2026-01-01T00:00:01Z stdout F one\n").unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "one\n");
}

#[tokio::test]
async fn what_cannot_be_shown_says_why_in_kubelets_words() {
    let server = Server::start("").await;
    let rows = [
        (
            "/containerLogs/shop/web/late",
            400,
            "trying and failing to pull image",
        ),
        (
            "/containerLogs/shop/web/none",
            404,
            "container \"none\" not found in pod \"web\"",
        ),
        (
            "/containerLogs/shop/none/app",
            404,
            "pod \"none\" in namespace \"shop\" not found",
        ),
        (
            "/containerLogs/shop/web/app?tailLines=x",
            422,
            "tailLines: Invalid value",
        ),
        (
            "/containerLogs/shop/web/app?previous=true",
            400,
            "previous terminated container",
        ),
        (
            "/containerLogs/shop/web/app",
            500,
            "failed to open log file",
        ),
        (
            "/exec/shop/web/app?command=cat",
            400,
            "you must specify at least 1 of",
        ),
        (
            "/exec/shop/web/late?output=1&command=cat",
            404,
            "container not found (\"late\")",
        ),
        (
            "/exec/shop/web/other-uid/app?output=1&command=cat",
            404,
            "not found",
        ),
        ("/portForward/shop/web", 501, "not supported"),
    ];
    for (path, want_status, want_text) in rows {
        let (status, body) = server.get(path).await;
        assert_eq!(status.as_u16(), want_status, "{path}: {body}");
        assert!(body.contains(want_text), "{path}: {body}");
    }
}

/// A server that switches protocols and then sends back what it gets, in upper case.
async fn shouting_server(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).await.unwrap();
    }
    let lower = head.to_lowercase();
    assert!(
        head.starts_with("POST /exec/token?x=1 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(lower.contains("upgrade: spdy/3.1\r\n"), "{head}");
    assert!(
        lower.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"),
        "{head}"
    );
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                  Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await.unwrap();
    stream
        .get_mut()
        .write_all(&heard.to_ascii_uppercase())
        .await
        .unwrap();
}

#[tokio::test]
async fn exec_passes_the_upgraded_connection_both_ways() {
    let runtime = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/exec/token?x=1", runtime.local_addr().unwrap());
    let shouting = tokio::spawn(shouting_server(runtime));
    let server = Server::start(&url).await;
    let request = hyper::Request::builder()
        .method(Method::POST)
        .uri("/exec/shop/web/u1/app?command=cat&input=1&output=1")
        .header("Connection", "Upgrade")
        .header("Upgrade", "SPDY/3.1")
        .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
        .body(Empty::new())
        .unwrap();
    let response = server
        .request(Some(&server.authority), "alice", request)
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(
        response.headers()["x-stream-protocol-version"],
        "v4.channel.k8s.io"
    );
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "HELLO");
    shouting.await.unwrap();
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_is_a_bad_gateway() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/exec", listener.local_addr().unwrap());
    drop(listener);
    let server = Server::start(&url).await;
    let (status, body) = server.get("/exec/shop/web/app?command=cat&output=1").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(body.contains("connect to streaming server"), "{body}");
}

#[test]
fn bad_certificate_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let serving = || ServingCertificate::self_signed("n1", &[]).unwrap();
    let error = tls::acceptor(serving(), &empty).err().unwrap().to_string();
    assert!(error.contains("empty.pem holds no certificate"), "{error}");
    let missing = directory.path().join("missing.pem");
    let error = tls::acceptor(serving(), &missing)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("missing.pem"), "{error}");
    let good = directory.path().join("good.pem");
    std::fs::write(&good, Authority::new().0.pem()).unwrap();
    let error = ServingCertificate::from_files(&good, &missing)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!("read a private key from {}", missing.display())
    );
}
