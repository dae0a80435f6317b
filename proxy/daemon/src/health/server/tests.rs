//! The end of a server, over loopback.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// Only what never comes takes as long.
const PATIENCE: Duration = Duration::from_secs(10);

struct Server {
    addr: SocketAddr,
    stop: CancellationToken,
    task: JoinSet<std::io::Result<()>>,
}

impl Server {
    /// Answers after half of the time that it has at the end.
    /// At an address that no other test has, since its port is free for a moment.
    async fn start(ip: &str) -> Self {
        let free = TcpListener::bind((ip, 0)).await.unwrap();
        let addr = free.local_addr().unwrap();
        drop(free);
        let slow = || async {
            sleep(FAREWELL / 2).await;
            "late"
        };
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/slow", get(slow));
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(serve(addr, router, stop.clone(), None));
        let server = Self { addr, stop, task };
        let listens = async {
            while TcpStream::connect(addr).await.is_err() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, listens).await.unwrap();
        server
    }

    async fn sent(&self, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.addr).await.unwrap();
        client.write_all(text.as_bytes()).await.unwrap();
        client
    }

    async fn end(mut self) -> std::io::Result<()> {
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.task.join_next()).await;
        ended.expect("it does not end").unwrap().unwrap()
    }
}

async fn answer(mut client: TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn half_a_request_does_not_keep_a_server_from_its_end() {
    let server = Server::start("127.0.10.1").await;
    let half = server.sent("G").await;
    // Who came later has been answered, so this one has been seen.
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(answer(server.sent(request).await).await.ends_with("here"));
    server.end().await.unwrap();
    drop(half);
}

#[tokio::test]
async fn what_was_asked_before_the_end_is_answered() {
    let server = Server::start("127.0.10.2").await;
    let asked = server.sent("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let seen = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(answer(server.sent(seen).await).await.ends_with("here"));
    server.end().await.unwrap();
    // Later nothing of the process is left.
    let answer = timeout(FAREWELL / 4, answer(asked)).await;
    assert!(answer.unwrap().ends_with("late"));
}
