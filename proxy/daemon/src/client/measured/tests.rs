use std::future::ready;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Config};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::client::measured_client;
use crate::metrics::ApiRequests;

fn text(requests: &ApiRequests) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    requests.register(&mut registry);
    encode(&mut text, &registry).unwrap();
    text
}

/// How many requests have a duration, whatever their labels.
fn ended(requests: &ApiRequests) -> u32 {
    let name = "rest_client_request_duration_seconds_count{";
    let text = text(requests);
    let lines = text.lines().filter(|line| line.starts_with(name));
    let counts = lines.filter_map(|line| line.rsplit(' ').next());
    counts.map(|count| count.parse::<u32>().unwrap()).sum()
}

#[tokio::test]
async fn a_request_lasts_until_its_answer_is_read_and_a_watch_until_it_has_begun() {
    let requests = ApiRequests::default();
    let answer = |_: Request<Body>| {
        let body = Body::from(b"{}".to_vec());
        ready(Ok::<_, BoxError>(Response::new(body)))
    };
    let service = By(Whole(requests.to("a:1"))).layer(service_fn(answer));
    for (uri, at_once) in [
        ("/api/v1/nodes", 0),
        ("/api/v1/nodes?&limit=500&labelSelector=watch%3Dtrue", 0),
        ("/api/v1/nodes?&watch=true&timeoutSeconds=115", 1),
    ] {
        let before = ended(&requests);
        let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
        let answer = service.clone().oneshot(request).await.unwrap();
        assert_eq!(ended(&requests) - before, at_once, "{uri}");
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "{}", "{uri}");
        assert_eq!(ended(&requests) - before, 1, "{uri}");
    }
}

#[tokio::test]
async fn a_request_that_fails_has_lasted_until_then() {
    let requests = ApiRequests::default();
    let refuse = |_: Request<Body>| ready(Err::<Response<Body>, BoxError>("refused".into()));
    let service = By(Whole(requests.to("a:1"))).layer(service_fn(refuse));
    let request = Request::new(Body::empty());
    assert!(service.oneshot(request).await.is_err());
    assert_eq!(ended(&requests), 1);
}

/// Answers one request on each connection, with these; nobody is there any more afterwards.
async fn serve(listener: TcpListener, answers: [&'static str; 2]) {
    for status in answers {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(connection.read_buf(&mut request).await.unwrap() > 0);
        }
        let body = r#"{"apiVersion":"v1","kind":"NodeList","metadata":{},"items":[]}"#;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        connection.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn each_try_of_the_client_counts_and_they_are_one_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = ["503 Service Unavailable", "200 OK"];
    let server = tokio::spawn(serve(listener, answers));
    let config = Config::new(format!("http://{address}/").parse().unwrap());
    let api = measured_client(config).unwrap();
    let nodes = Api::<Node>::all(api.client);
    let list = async || nodes.list(&ListParams::default()).await;
    list().await.unwrap();
    assert_eq!(ended(&api.requests), 1);
    server.await.unwrap();
    list().await.unwrap_err();
    assert_eq!(ended(&api.requests), 2);
    let text = text(&api.requests);
    for code in ["503", "200", "<error>"] {
        let line = format!(
            "rest_client_requests_total{{code=\"{code}\",method=\"GET\",host=\"{address}\"}} 1"
        );
        assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
    }
}

#[test]
fn a_server_is_named_with_its_port_and_without_a_password() {
    for (url, want) in [
        ("https://10.96.0.1", "10.96.0.1:443"),
        ("https://[fd00:96::1]:6443/", "[fd00:96::1]:6443"),
        ("http://localhost/", "localhost:80"),
        ("https://user:secret@api.example/path", "api.example:443"),
    ] {
        assert_eq!(host(&url.parse().unwrap()), want, "{url}");
    }
}
