use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers one request with `answer`; the request as received.
async fn probe(answer: &'static str, get: HTTPGetAction) -> (Result<(), String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let request = Request {
        get: &get,
        host: "127.0.0.1",
        port,
    };
    tokio::join!(super::get(request), server)
}

#[tokio::test]
async fn status_decides() {
    for (answer, want) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok(())),
        ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", Ok(())),
        (
            "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            Err("HTTP probe failed with statuscode: 503".to_owned()),
        ),
    ] {
        assert_eq!(probe(answer, HTTPGetAction::default()).await.0, want);
    }
}

#[tokio::test]
async fn request_carries_path_and_headers() {
    let get: HTTPGetAction = serde_json::from_value(serde_json::json!({
        "path": "healthz?x=1", "port": 0,
        "httpHeaders": [{"name": "Host", "value": "web"}, {"name": "X-A", "value": "b"}]
    }))
    .unwrap();
    let (result, seen) = probe("HTTP/1.1 204 x\r\n\r\n", get).await;
    assert_eq!(result, Ok(()));
    assert!(seen.starts_with("GET /healthz?x=1 HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains("host: web\r\n") && seen.contains("x-a: b\r\n"),
        "{seen}"
    );
}

#[tokio::test]
async fn refused_names_the_address() {
    let get = HTTPGetAction::default();
    let error = super::get(Request {
        get: &get,
        host: "127.0.0.1",
        port: 1,
    })
    .await
    .unwrap_err();
    assert!(
        error.starts_with("Get \"http://127.0.0.1:1/\": "),
        "{error}"
    );
}
