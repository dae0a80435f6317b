//! As much of an API server as a list and a watch need: plain HTTP, no validation.
//!
//! Unlike the real one it serves what a test wants, such as malformed objects, and
//! answers when the test wants it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use seaway_testbed::Netns;
use serde_json::{Value, json};

/// What the daemon follows, by the last part of its path.
pub(crate) const SERVICES: &str = "services";
pub(crate) const SLICES: &str = "endpointslices";
pub(crate) const NODES: &str = "nodes";

/// A server that lives as long as the process; its threads end with their connections.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// By kind and namespace/name.
    objects: BTreeMap<(String, String), Value>,
    /// Version, kind, and the line of the watch.
    events: Vec<(u64, String, String)>,
    /// A kind whose requests are not answered.
    held: Option<&'static str>,
    requests: Vec<String>,
}

impl FakeApi {
    /// Listens at `address` inside `netns`; requests for `held` wait for [`release`](Self::release).
    pub(crate) fn start(netns: &Netns, address: SocketAddr, held: Option<&'static str>) -> Self {
        let listener = netns.enter(|| TcpListener::bind(address)).unwrap();
        let state = State {
            held,
            version: 1,
            ..State::default()
        };
        let api = Self {
            state: Arc::new((Mutex::new(state), Condvar::new())),
        };
        let server = api.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                // A client that goes away ends its thread by an error.
                std::thread::spawn(move || server.serve(connection).ok());
            }
        });
        api
    }

    /// Adds or changes an object.
    pub(crate) fn apply(&self, kind: &str, object: Value) {
        self.change(kind, "MODIFIED", object);
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, kind: &str, object: Value) {
        self.change(kind, "DELETED", object);
    }

    /// Answers from now on what was held.
    pub(crate) fn release(&self) {
        self.state.0.lock().unwrap().held = None;
        self.state.1.notify_all();
    }

    /// Paths with queries, in the order of arrival.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.0.lock().unwrap().requests.clone()
    }

    fn change(&self, kind: &str, event: &str, mut object: Value) {
        let mut state = self.state.0.lock().unwrap();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let meta = &object["metadata"];
        let key = (
            kind.to_owned(),
            format!("{}/{}", meta["namespace"], meta["name"]),
        );
        let line = json!({ "type": event, "object": &object }).to_string();
        state.events.push((version, kind.to_owned(), line));
        if event == "DELETED" {
            state.objects.remove(&key);
        } else {
            state.objects.insert(key, object);
        }
        self.state.1.notify_all();
    }

    fn serve(&self, connection: TcpStream) -> io::Result<()> {
        let mut writer = connection.try_clone()?;
        let mut lines = BufReader::new(connection).lines();
        while let Some(request) = lines.next() {
            let request = request?;
            // GET has no body, so the head ends the request.
            for header in lines.by_ref() {
                if header?.is_empty() {
                    break;
                }
            }
            let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
            self.arrived(&target, &kind);
            if query.contains("watch=true") {
                return self.watch(&kind, query, &mut writer);
            }
            self.list(&kind, &mut writer)?;
        }
        Ok(())
    }

    fn arrived(&self, target: &str, kind: &str) {
        let mut state = self.state.0.lock().unwrap();
        state.requests.push(target.to_owned());
        while state.held == Some(kind) {
            state = self.state.1.wait(state).unwrap();
        }
    }

    fn list(&self, kind: &str, writer: &mut TcpStream) -> io::Result<()> {
        let body = {
            let state = self.state.0.lock().unwrap();
            let items = state.objects.iter().filter(|((k, _), _)| k == kind);
            let items: Vec<_> = items.map(|(_, object)| object).collect();
            let version = state.version.to_string();
            json!({ "metadata": { "resourceVersion": version }, "items": items }).to_string()
        };
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn watch(&self, kind: &str, query: &str, writer: &mut TcpStream) -> io::Result<()> {
        let since = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="));
        let mut seen: u64 = since.and_then(|v| v.parse().ok()).unwrap_or(0);
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        loop {
            let news: Vec<(u64, String)> = {
                let mut state = self.state.0.lock().unwrap();
                while state.version <= seen {
                    state = self.state.1.wait(state).unwrap();
                }
                let all = state.events.iter();
                let new = all.filter(|(version, k, _)| *version > seen && k == kind);
                let new = new
                    .map(|(version, _, line)| (*version, line.clone()))
                    .collect();
                seen = state.version;
                new
            };
            for (_, line) in news {
                write!(writer, "{:x}\r\n{line}\n\r\n", line.len() + 1)?;
            }
        }
    }
}
