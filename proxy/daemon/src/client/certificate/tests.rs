//! Against a server that wants client certificates, over loopback.

use std::net::SocketAddr;
use std::path::Path;

use axum::http::Request;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::api_client;

/// Whom certificates are for.
const NAMES: [&str; 2] = ["first", "second"];
const CERTIFICATE: &str = "client.crt";
const KEY: &str = "client.key";

/// Answers every request with the name that the connection began with.
struct Server {
    authority: CertifiedIssuer<'static, KeyPair>,
    address: SocketAddr,
    _task: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(params, key).unwrap();
        let acceptor = acceptor(&authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(acceptor.clone(), stream));
            }
        });
        Self {
            authority,
            address,
            _task: task,
        }
    }

    /// A certificate and its key.
    fn identity(&self, name: &str) -> [String; 2] {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }

    fn client(&self, dir: &Path) -> Client {
        let url = format!("https://{}", self.address);
        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![self.authority.der().to_vec()]);
        let path = |name: &str| Some(dir.join(name).display().to_string());
        config.auth_info.client_certificate = path(CERTIFICATE);
        config.auth_info.client_key = path(KEY);
        api_client(config).unwrap()
    }
}

fn acceptor(authority: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<()> {
    let stream = acceptor.accept(stream).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().unwrap()[0].to_vec();
    let is_in = |name: &str| {
        let mut parts = certificate.windows(name.len());
        parts.any(|part| part == name.as_bytes())
    };
    let name = NAMES.into_iter().find(|&name| is_in(name)).unwrap();
    let length = name.len();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if line == "\r\n" {
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        line.clear();
    }
    Ok(())
}

async fn known_as(client: &Client) -> String {
    let request = Request::get("/version").body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap()
}

#[tokio::test]
async fn a_client_certificate_that_was_replaced_is_used_at_once() {
    let server = Server::start().await;
    let [first, second] = NAMES.map(|name| server.identity(name));
    let dir = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
    put(CERTIFICATE, &first[0]);
    put(KEY, &first[1]);
    let client = server.client(dir.path());
    assert_eq!(known_as(&client).await, "first");
    // No pair, and half a file.
    put(CERTIFICATE, &second[0]);
    assert_eq!(known_as(&client).await, "first");
    put(KEY, &second[1][..40]);
    assert_eq!(known_as(&client).await, "first");
    // The connection that is open is one of the first.
    put(KEY, &second[1]);
    assert_eq!(known_as(&client).await, "second");
    for file in [CERTIFICATE, KEY] {
        fs::remove_file(dir.path().join(file)).unwrap();
        assert_eq!(known_as(&client).await, "second", "without {file}");
    }
}

#[track_caller]
fn check(auth: Value, expected: &[&str]) {
    let auth: AuthInfo = serde_json::from_value(auth).unwrap();
    let files = files(&auth);
    let files: Vec<_> = files.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(files, expected);
}

#[test]
fn files_are_followed_where_they_are_what_kube_takes() {
    check(json!({}), &[]);
    check(json!({"tokenFile": "/t"}), &[]);
    let files = json!({"client-certificate": "/c", "client-key": "/k"});
    check(files.clone(), &["/c", "/k"]);
    let with = |key: &str, value: Value| {
        let mut auth = files.clone();
        auth[key] = value;
        auth
    };
    check(with("client-key-data", json!("a2V5")), &["/c"]);
    check(with("client-certificate-data", json!("Y2VydA==")), &["/k"]);
    check(with("exec", json!({"command": "login"})), &[]);
}
